//! The `[workers]` table: which threads poll which roles, on which cores, and how they wait.

use livetime_node::{ChainConfig, WorkerConfig};
use livetime_shm::WaitStrategy;

use super::document::Section;

const WAITS: [(&str, WaitStrategy); 3] = [
    ("spin", WaitStrategy::Spin),
    ("adaptive", WaitStrategy::Adaptive),
    ("block", WaitStrategy::Block),
];

/// The table as it is written: how all wait, and the workers if they are listed.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable {
    wait: Option<WaitStrategy>,
    /// Whether each role gets a process of its own. Default `false`.
    pub(crate) processes: bool,
    /// Whether it is written that they are threads.
    pub(crate) are_threads: bool,
    listed: Vec<WorkerConfig>,
}

/// Reads the table.
pub(crate) fn read_workers(root: &mut Section<'_, '_>) -> WorkerTable {
    let mut table = WorkerTable::default();
    let Some(mut section) = root.section("workers") else {
        return table;
    };
    table.wait = section.choice("wait", &WAITS);
    let processes = section.switch("processes");
    table.processes = processes == Some(true);
    table.are_threads = processes == Some(false);
    for (index, mut worker) in section.sections("worker").into_iter().enumerate() {
        worker.require("roles", "a list of role ids, such as [\"ru0\", \"ru1\"]");
        table.listed.push(WorkerConfig {
            name: worker
                .text("name")
                .unwrap_or_else(|| format!("worker{index}")),
            core: worker.integer("core", 0..=4095).map(|core| core as usize),
            wait: worker
                .choice("wait", &WAITS)
                .or(table.wait)
                .unwrap_or_default(),
            roles: worker.texts("roles").unwrap_or_default(),
        });
        worker.finish();
    }
    section.finish();
    table
}

impl WorkerTable {
    /// The workers of a chain on `cores` cores: those listed, or the default ones.
    pub(crate) fn workers_of(self, chain: &ChainConfig, cores: usize) -> Vec<WorkerConfig> {
        if !self.listed.is_empty() {
            return self.listed;
        }
        let mut workers = chain.default_workers(cores);
        if let Some(wait) = self.wait {
            // The writer sleeps at the disk whatever the others do.
            for worker in workers
                .iter_mut()
                .filter(|worker| worker.wait != WaitStrategy::Block)
            {
                worker.wait = wait;
            }
        }
        workers
    }
}
