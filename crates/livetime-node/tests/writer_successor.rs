//! A writer that goes on with the file of a dead one: what builder units hand over once more because
//! nobody answered is stored if it is not in the file, and only answered if it is.
#![expect(clippy::unwrap_used, reason = "a failed test may panic")]

use std::path::Path;

use livetime_node::RunFile;
use livetime_node::building_group::BuildingGroup;
use livetime_node::counter_block::CounterBlock;
use livetime_node::role::writer::{Writer, WriterParts};
use livetime_node::role::{Role, RoleCommand, RoleResult};
use livetime_node::run_file::ClosingFile;
use livetime_node::worker::Phase;
use livetime_shm::{Consumer, Producer, RingConfig, ring};
use livetime_store::{Condition, RunBegin, RunEnd, RunReader, WriterLimits};
use livetime_wire::message::EventTicket;
use livetime_wire::{RunNs, RunNumber, SourceId, TriggerNumber, UnitId};

const RUN: RunNumber = RunNumber(5);
const NOW: RunNs = RunNs(0);

/// A writer with one builder unit before it.
struct Bench {
    writer: Box<dyn Role>,
    tickets: Producer,
    answers: Consumer,
}

impl Bench {
    fn new(file: RunFile) -> Self {
        let ends = || {
            ring(&RingConfig {
                slots: 16,
                slot_words: 64,
            })
            .unwrap()
        };
        let (tickets, from_builder) = ends();
        let (written, answers) = ends();
        let writer = Writer::new(WriterParts {
            id: "wr0".to_owned(),
            run: RUN,
            file,
            group: BuildingGroup { index: 0, count: 1 },
            tickets: vec![from_builder],
            written: vec![written],
            credits: 8,
            pools: Vec::new(),
            block: CounterBlock::new(),
            sources: 1,
            output: WriterLimits::default().output,
        });
        Self {
            writer: Box::new(writer),
            tickets,
            answers,
        }
    }

    /// Hands over an event without fragments.
    fn hand_over(&mut self, trigger: u64) {
        let mut ticket = EventTicket::with_capacity(1);
        ticket.trigger = TriggerNumber(trigger);
        ticket.missing.push(SourceId(3));
        let mut words = Vec::new();
        ticket.emit(&mut words);
        self.tickets.try_push(&words).unwrap();
        self.writer.poll(NOW, Phase::Running);
    }

    /// Triggers of the events that the writer answered for.
    fn answered(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.answers.try_pop(|words| words[0]).unwrap()).collect()
    }

    /// Ends the writer with a whole chunk, and leaves its file as it is.
    fn die(self) -> RoleResult {
        self.writer.finish(NOW)
    }
}

fn stored(path: &Path) -> Vec<u64> {
    let mut reader = RunReader::open(std::fs::File::open(path).unwrap()).unwrap();
    let mut triggers = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        triggers.push(event.header().trigger.0);
    }
    triggers
}

#[test]
fn what_the_dead_writer_had_stored_is_answered_and_not_stored_again() {
    let folder = std::env::temp_dir().join(format!("livetime-successor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("events.mcap");
    let limits = WriterLimits::default();
    let mut first = Bench::new(RunFile::create(&path, &RunBegin::new(RUN), limits).unwrap());
    (1..=3).for_each(|trigger| first.hand_over(trigger));
    assert_eq!(first.answered(), [1, 2, 3]);
    drop(first.die());

    // Of 3 the builder unit has not seen the answer; 4 has not been there.
    let file = RunFile::reopen(&path, limits).unwrap();
    assert_eq!(file.events_found(), 3);
    let mut second = Bench::new(file);
    (3..=4).for_each(|trigger| second.hand_over(trigger));
    assert_eq!(second.answered(), [3, 4]);
    let lost = RoleCommand::PeerLost {
        unit: UnitId::builder(0),
        triggers: [2, 3, 4].map(TriggerNumber).into(),
    };
    second.writer.handle_command(NOW, lost);
    let named = second.writer.poll_settled();
    assert_eq!(
        named,
        Some([3, 4, 2].map(TriggerNumber).into()),
        "what came here, and what the dead writer had put into the file"
    );
    let result = second.die();
    assert_eq!(result.details["events_repeated"], 1);
    assert_eq!(result.counts.chain.events_stored, 4);
    assert_eq!(result.counts.losses.total(), 0);
    let Some(ClosingFile::Here(file)) = result.run_file else {
        panic!("it was written here")
    };
    let end = RunEnd::new(RUN, Condition::GOOD, "test", 0);
    file.close(&end, &[]).unwrap();
    assert_eq!(stored(&path), [1, 2, 3, 4]);
    assert!(RunFile::reopen(&path, limits).is_err(), "it has its end");
    std::fs::remove_dir_all(&folder).unwrap();
}
