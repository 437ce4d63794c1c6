//! The rules between the parts of a chain: pages against credits, links against readout units,
//! fragments against files, roles against workers. Those within a part are its own.

use std::collections::BTreeMap;

use livetime_builder::PageDemand;
use livetime_builder::problem_code::POOL_TOO_SMALL;
use livetime_readout::LinkConfig;
use livetime_shm::WaitStrategy;
use livetime_shm::page_state::MAX_OWNERS;
use livetime_store::problem_code::OUTPUT_LIMIT;
use livetime_wire::event::EventHeader;
use livetime_wire::message_datagram::PAYLOAD_WORDS_MAX;
use livetime_wire::{ByteSize, Problem, ProblemCode, UnitKind};

use super::{ChainConfig, DataLinkConfig};
use crate::builder_transport::BuilderTransport;
use crate::chain_plan::{PoolKey, event_buffer_bytes, fullest_pool};
use crate::role_ends::unit_of;

/// Links of one readout unit must have pages of one size.
const MIXED_PAGES: ProblemCode = ProblemCode::new(
    "L0201",
    "links of one readout unit have pages of different sizes",
);
/// Page size that memory cannot be divided into.
const PAGE_ALIGNMENT: ProblemCode =
    ProblemCode::new("L0202", "page size is not a multiple of 64 B");
/// Fragments of the source that a link does not take.
pub const FRAGMENT_LIMIT: ProblemCode = ProblemCode::new(
    "L0203",
    "link takes shorter fragments than the source sends",
);
/// Trigger packets that do not fit into a page of the trigger link.
const PACKET_PAGE: ProblemCode =
    ProblemCode::new("L0204", "trigger packet does not fit into a page");
/// Pages that do not go into datagrams between the units of the event builder.
const DATAGRAM_PAGES: ProblemCode = ProblemCode::new(
    "L0205",
    "page does not go into a datagram of the event builder",
);
/// A receive buffer in which the fragments of one event overflow.
const RECEIVE_BUFFER: ProblemCode = ProblemCode::new(
    "L0206",
    "receive buffer does not hold one event of a readout unit",
);
/// Traffic shaping between units that share memory.
const SHAPING_IN_MEMORY: ProblemCode =
    ProblemCode::new("L0207", "traffic shaping without a network");
/// Events of the source that the run file does not take.
pub const EVENT_LIMIT: ProblemCode = ProblemCode::new(
    "S0104",
    "run file takes smaller events than the source sends",
);
/// More spinning workers than cores.
const SPINNING_WORKERS: ProblemCode = ProblemCode::new("R0101", "more spinning workers than cores");
/// A role that runs nowhere, twice, or does not exist.
pub const ROLE_PLACEMENT: ProblemCode = ProblemCode::new("R0102", "roles and workers do not match");
/// A core that this process may not use.
const WORKER_CORE: ProblemCode = ProblemCode::new("R0103", "worker on a core that is not there");
/// A worker without a name that its thread can have.
const WORKER_NAME: ProblemCode = ProblemCode::new("R0105", "worker has no name of its own");
/// More processes than can share the pages of a unit.
pub const SHARED_PAGES: ProblemCode = ProblemCode::new(
    "R0107",
    "more processes read the pages of a unit than can have them open",
);

/// Bytes that the name of a worker may have.
const WORKER_NAME_BYTES_MAX: usize = 64;

impl ChainConfig {
    /// Problems between the parts; those within a part are found by its own `validate`.
    /// `trigger_path` is the key of the trigger link, `link_path` gives that of a data link by its
    /// index.
    pub fn validate(
        &self,
        cores: &[usize],
        trigger_path: &str,
        link_path: impl Fn(usize) -> String,
    ) -> Vec<Problem> {
        let mut problems = self.check_pages(&link_path);
        for (index, link) in self.data_links.iter().enumerate() {
            problems.extend(self.check_data_link(link, &link_path(index)));
        }
        problems.extend(self.check_trigger_link(trigger_path));
        problems.extend(self.check_receive_buffer());
        problems.extend(self.check_shaping());
        problems.extend(self.check_store());
        problems.extend(self.check_output());
        problems.extend(self.check_workers(cores));
        problems
    }

    /// Whether the pages of each unit can be shared where each role is a process of its own;
    /// `filters_path` is the key of the number of filter units.
    pub fn check_processes(&self, filters_path: &str) -> Option<Problem> {
        let (pool, roles) = fullest_pool(self)?;
        // Whoever makes the pages has them open as well.
        let open = roles.len() + 1;
        if open <= MAX_OWNERS {
            return None;
        }
        let (filters, builders) = (self.builder.filter_units, self.builder.builder_units);
        let writers = self.builder.writers.max(1);
        let readers = [
            (UnitKind::Filter, filters_path, filters),
            (UnitKind::Builder, "builder.builder_units", builders),
            (UnitKind::Writer, "store.writers", writers),
        ]
        .map(|(kind, path, units)| {
            let is_of = |role: &&String| unit_of(role).is_some_and(|unit| unit.kind == kind);
            (roles.iter().filter(is_of).count(), kind, path, units)
        });
        let (count, kind, path, units) = readers.into_iter().max_by_key(|(count, ..)| *count)?;
        let others: Vec<&str> = (roles.iter().map(String::as_str))
            .filter(|role| unit_of(role).is_none_or(|unit| unit.kind != kind))
            .collect();
        // A builder unit's pages are read by the filter units of its group alone.
        let groups = match pool {
            PoolKey::Builder(_) => usize::from(writers),
            _ => 1,
        };
        let most = MAX_OWNERS.saturating_sub(open - count) * groups;
        let allowed = match most {
            0 => format!("fewer: {MAX_OWNERS} processes can"),
            most => format!(
                "at most {most}: {MAX_OWNERS} processes can, of which {} and the one that makes them are \
                 others",
                some_of(&others)
            ),
        };
        let help = match kind {
            UnitKind::Filter => {
                "lower it, or set `transport = \"tcp\"` under `[filter]`: a filter unit then opens no pages \
                 but its own"
            }
            _ => "lower it, or set `transport = \"tcp\"` under `[builder]`",
        };
        let found =
            format!("{units}, so that {open} processes would have the pages of {pool} open");
        Some(Problem::new(SHARED_PAGES, path, found, allowed, help))
    }

    fn check_pages(&self, link_path: &impl Fn(usize) -> String) -> Vec<Problem> {
        let mut problems = Vec::new();
        for unit in 0..self.builder.readout_units.len() {
            let links: Vec<(usize, &DataLinkConfig)> = (self.data_links.iter().enumerate())
                .filter(|(_, link)| usize::from(link.unit) == unit)
                .collect();
            let Some((first, reference)) = links.first() else {
                continue;
            };
            for (index, link) in &links {
                let (found, expected) = (link.link.page_words, reference.link.page_words);
                if found != expected {
                    let size = |words: u32| format!("{:#}", ByteSize(u64::from(words) * 4));
                    let problem = Problem::new(
                        MIXED_PAGES,
                        format!("{}.page", link_path(*index)),
                        size(found),
                        format!("{}, as the other links of ru{unit}", size(expected)),
                        "give all links of a readout unit one page size: they share its pool",
                    );
                    let first = format!("{}.page", link_path(*first));
                    problems.push(problem.with_related(first, "first used here"));
                }
            }
            problems.extend(self.check_demand(&links, link_path));
        }
        problems.extend(self.check_order(link_path));
        problems
    }

    /// Whether the pages of each link allow decisions out of order. Trigger nodes side by side may have
    /// an event get its credit before older ones, which then wait for it while their fragments lie
    /// before its own on each link: as many as there are Level-2 buffers, and they may be the longest.
    fn check_order(&self, link_path: &impl Fn(usize) -> String) -> Option<Problem> {
        if self.trigger_nodes < 2 {
            return None;
        }
        let longest = self.source.fragment.bytes_max.0;
        let buffers = u64::from(self.supervisor.l2_buffers);
        let missing = |(index, DataLinkConfig { link, .. }): (usize, &DataLinkConfig)| {
            let page_bytes = u64::from(link.page_words) * 4;
            let apart = u64::from(link.request_depth) + u64::from(link.xon_above);
            let needed = buffers * longest.div_ceil(page_bytes.max(1)) + apart;
            (u64::from(link.pages) < needed).then_some((index, link.pages, needed))
        };
        let mut links = self.data_links.iter().enumerate();
        let (index, pages, needed) = links.find_map(missing)?;
        let problem = Problem::new(
            POOL_TOO_SMALL,
            "trigger.nodes",
            self.trigger_nodes,
            format!("1, or `pages` of at least {needed}"),
            "raise `pages` of the links, or lower `bytes_max` of the fragments; `livetime explain \
             B0107` says why",
        );
        let label = format!(
            "{pages} pages here, {needed} needed: {buffers} Level-2 buffers x {} of the longest fragment, \
             and those posted and for XOFF",
            ByteSize(longest)
        );
        Some(problem.with_related(format!("{}.pages", link_path(index)), label))
    }

    /// Where datagrams carry payload, each takes a page, from its readout unit into one of its builder
    /// unit.
    fn check_datagram(&self, link: &DataLinkConfig, path: &str) -> Option<Problem> {
        let (words, of_all) = (link.link.page_words, self.data_links[0].link.page_words);
        if !self.transport.is_udp() || (words as usize <= PAYLOAD_WORDS_MAX && words == of_all) {
            return None;
        }
        let size = |words: u32| format!("{:#}", ByteSize(u64::from(words) * 4));
        let (allowed, help) = match words == of_all {
            // Pages are divided into parts of 64 bytes.
            true => (
                format!("at most {} B", PAYLOAD_WORDS_MAX / 16 * 64),
                "choose \"32 KiB\" or less, or `transport = \"tcp\"` under `[builder]`",
            ),
            false => (
                format!("{}, as the other data links", size(of_all)),
                "give all data links one page size, or set `transport = \"tcp\"` under `[builder]`",
            ),
        };
        let key = format!("{path}.page");
        let problem = Problem::new(DATAGRAM_PAGES, key, size(words), allowed, help);
        Some(problem.with_related("builder.transport", "the transport of the payload"))
    }

    /// A builder unit that misses a fragment asks a readout unit for all that it has of the event: where
    /// these overflow, the last ones never come.
    fn check_receive_buffer(&self) -> Option<Problem> {
        let BuilderTransport::Udp {
            receive_buffer_bytes: found @ 1..,
        } = self.transport
        else {
            return None;
        };
        let least = event_buffer_bytes(self);
        let least = ByteSize(least.checked_next_multiple_of(1 << 10).unwrap_or(least));
        (found < least.0).then(|| {
            Problem::new(
                RECEIVE_BUFFER,
                "builder.receive_buffer",
                format!("{:#}", ByteSize(found)),
                format!("at least {least:#}, for the largest fragments of one event"),
                "leave the key out: the buffers are then as large as the credits need",
            )
        })
    }

    /// In shared memory payload stays where the links have put it: there is no traffic to shape.
    fn check_shaping(&self) -> Option<Problem> {
        let shaping = self.builder.shaping.as_ref();
        shaping
            .filter(|_| !self.transport.is_network())
            .map(|shaping| {
                Problem::new(
                    SHAPING_IN_MEMORY,
                    "builder.shaping",
                    format!("\"{}\"", shaping.kind()),
                    "\"none\" with `transport = \"shm\"`, where fragments do not move",
                    "set `transport` to \"tcp\" or \"udp\", or leave `shaping` out",
                )
                .with_related("builder.transport", "what carries the payload")
            })
    }

    fn check_data_link(&self, link: &DataLinkConfig, path: &str) -> Vec<Problem> {
        let mut problems: Vec<Problem> = check_alignment(&link.link, path).into_iter().collect();
        problems.extend(self.check_datagram(link, path));
        let (sent, taken) = (
            self.source.fragment.bytes_max,
            ByteSize(u64::from(link.link.fragment_words_max) * 4),
        );
        if taken < sent {
            problems.push(Problem::new(
                FRAGMENT_LIMIT,
                format!("{path}.fragment_max"),
                format!("{:#}", taken),
                format!("at least {sent:#}, the source's `fragment.bytes_max`"),
                "raise `fragment_max` or `page`, or lower `bytes_max`: what is longer is lost",
            ));
        }
        problems
    }

    fn check_trigger_link(&self, path: &str) -> Vec<Problem> {
        let link = &self.trigger_link;
        let mut problems: Vec<Problem> = check_alignment(link, path).into_iter().collect();
        let most = link.page_words.min(link.fragment_words_max);
        let packet = self.source.packet_words_max;
        if packet as u64 > u64::from(most) {
            let problem = Problem::new(
                PACKET_PAGE,
                "trigger.packet_words_max",
                packet,
                format!("at most {most}, the words of a page of the trigger link"),
                "raise `page` of the link to trg0, and its `fragment_max` if it is set: packets above a \
                 lower limit lose items",
            );
            problems.push(problem.with_related(format!("{path}.page"), "page set here"));
        }
        problems
    }

    /// Whether the run file takes the largest event: the longest fragment of each link.
    fn check_store(&self) -> Option<Problem> {
        let links = self.data_links.len();
        let header_bytes = 4 * EventHeader::words(links, 0) as u64;
        let fragment_bytes = self.source.fragment.bytes_max.0;
        let of_links = fragment_bytes.saturating_mul(links as u64);
        let largest = ByteSize(of_links.saturating_add(header_bytes));
        let taken = ByteSize(self.store.event_bytes_max as u64);
        (taken < largest).then(|| {
            Problem::new(
                EVENT_LIMIT,
                "store.event_max",
                format!("{:#}", taken),
                format!("at least {largest:#}: a fragment of {fragment_bytes} B on each link"),
                "raise it, or lower `bytes_max` of the fragments: what is larger is not stored",
            )
        })
    }

    /// Whether a writer's share of the output budget takes the largest event.
    fn check_output(&self) -> Option<Problem> {
        let (budget, event) = (self.store.output.bytes_per_s, self.store.event_bytes_max);
        let writers = u64::from(self.builder.writers.max(1));
        let is_short = budget > 0 && writers > 1 && budget / writers < event as u64;
        is_short.then(|| {
            Problem::new(
                OUTPUT_LIMIT,
                "store.output_per_second",
                format!("{:#}", ByteSize(budget)),
                format!(
                    "0, or at least {:#} for {writers} writers",
                    ByteSize(writers.saturating_mul(event as u64))
                ),
                "raise it, or lower store.event_max: one event of each writer must fit into a second",
            )
            .with_related("store.writers", "the writers that share it")
        })
    }

    /// Whether the links' pages cover the credits. The smallest link counts for all: an event needs
    /// pages on each of its links.
    fn check_demand(
        &self,
        links: &[(usize, &DataLinkConfig)],
        link_path: &impl Fn(usize) -> String,
    ) -> Option<Problem> {
        let (index, link) = links.iter().min_by_key(|(_, link)| link.link.pages)?;
        let page_bytes = u64::from(link.link.page_words) * 4;
        let demand = PageDemand {
            page: ByteSize(page_bytes),
            pages_per_fragment: self
                .source
                .fragment
                .bytes_mean
                .0
                .div_ceil(page_bytes.max(1))
                .try_into()
                .unwrap_or(u32::MAX),
            l2_buffers: u32::from(self.supervisor.l2_buffers),
            posted_pages: link.link.request_depth,
            xoff_reserve: link.link.xon_above,
        };
        let pool_path = format!("{}.pages", link_path(*index));
        demand.check(
            &self.builder,
            "builder",
            1,
            u64::from(link.link.pages),
            &pool_path,
        )
    }

    fn check_workers(&self, cores: &[usize]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let spinning = self
            .workers
            .iter()
            .filter(|worker| worker.wait == WaitStrategy::Spin)
            .count();
        if spinning > 0 && self.workers.len() > cores.len() {
            problems.push(Problem::new(
                SPINNING_WORKERS,
                "workers.wait",
                format!(
                    "\"spin\" with {} workers on {} cores",
                    self.workers.len(),
                    cores.len()
                ),
                "\"adaptive\", or no more workers than cores",
                "set `wait = \"adaptive\"`: a spinning worker keeps the others from their core",
            ));
        }
        for (index, worker) in self.workers.iter().enumerate() {
            if let Some(core) = worker.core.filter(|core| !cores.contains(core)) {
                problems.push(Problem::new(
                    WORKER_CORE,
                    format!("workers.worker[{index}].core"),
                    core,
                    format!("{cores:?}"),
                    "choose a core that this process may run on, or leave `core` out",
                ));
            }
        }
        problems.extend(self.check_worker_names());
        problems.extend(self.check_roles());
        problems
    }

    /// Whether each worker has a name that a thread can have, and no other worker has: it is what
    /// people find the thread by.
    fn check_worker_names(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            let key = |index: usize| format!("workers.worker[{index}].name");
            let name = &worker.name;
            let is_name = (1..=WORKER_NAME_BYTES_MAX).contains(&name.len())
                && !name.contains(char::is_control);
            let mut before = self.workers[..index].iter();
            let first = before.position(|other| other.name == *name);
            if is_name && first.is_none() {
                continue;
            }
            let allowed = format!(
                "1 to {WORKER_NAME_BYTES_MAX} bytes of text without control characters, which no other \
                 worker has"
            );
            let help = "give the worker a short name of its own, or leave `name` out";
            let mut problem = Problem::new(
                WORKER_NAME,
                key(index),
                format!("\"{}\"", name.escape_debug()),
                allowed,
                help,
            );
            problem.related = first.map(|first| (key(first), "first used here".to_owned()));
            problems.push(problem);
        }
        problems
    }

    /// Whether each role runs in exactly one worker.
    fn check_roles(&self) -> Vec<Problem> {
        let ids = self.role_ids();
        let mut places: BTreeMap<&str, usize> = ids.iter().map(|id| (id.as_str(), 0)).collect();
        let mut strangers = Vec::new();
        for role in self.workers.iter().flat_map(|worker| &worker.roles) {
            match places.get_mut(role.as_str()) {
                Some(count) => *count += 1,
                None => strangers.push(role.as_str()),
            }
        }
        let in_order = ids.iter().map(String::as_str);
        let nowhere = in_order.clone().filter(|id| places[id] == 0).collect();
        let twice = in_order.filter(|id| places[id] > 1).collect();
        let mut problems = Vec::new();
        for (roles, place, allowed, help) in [
            (
                nowhere,
                "in no worker",
                "each role in exactly one worker",
                "add them to a worker, or leave out `[[workers.worker]]` altogether",
            ),
            (
                twice,
                "in several places",
                "each role in exactly one worker",
                "leave each of them in one worker",
            ),
            (
                strangers,
                "not in this chain",
                "the roles that `livetime check` lists for the chain without workers",
                "remove them, or add the units",
            ),
        ] {
            if !roles.is_empty() {
                let found = format!("{} {place}", some_of(&roles));
                let key = "workers.worker";
                problems.push(Problem::new(ROLE_PLACEMENT, key, found, allowed, help));
            }
        }
        problems
    }
}

fn check_alignment(link: &LinkConfig, path: &str) -> Option<Problem> {
    if link.page_words.is_multiple_of(16) {
        return None;
    }
    Some(Problem::new(
        PAGE_ALIGNMENT,
        format!("{path}.page"),
        format!("{} B", u64::from(link.page_words) * 4),
        "a multiple of 64 B",
        "choose a power of two, such as \"4 KiB\"",
    ))
}

/// The first of a list of roles, and how many more there are.
fn some_of(roles: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = roles[..roles.len().min(SHOWN)].join(" ");
    match roles.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
