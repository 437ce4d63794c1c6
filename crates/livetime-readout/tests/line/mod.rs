//! Words of a line and the fragments they are made of, for the tests of this crate.

use livetime_wire::fragment::{FragmentHeader, OVERHEAD_WORDS};
use livetime_wire::slink::{ControlWord, LineWord};
use livetime_wire::{RunNumber, SourceId, TriggerNumber};

pub(crate) const RUN: RunNumber = RunNumber(7);
pub(crate) const SOURCE: SourceId = SourceId(0x0001_0002);
pub(crate) const BEGIN: LineWord = LineWord::Control(ControlWord::BEGIN_FRAGMENT);
pub(crate) const END: LineWord = LineWord::Control(ControlWord::END_FRAGMENT);

/// A sound fragment.
pub(crate) fn fragment(trigger: u64, data_words: usize) -> Vec<u32> {
    let header = FragmentHeader {
        source: SOURCE,
        run: RUN,
        trigger_low: TriggerNumber(trigger).low(),
        bunch: 3,
        trigger_type: 1,
        event_type: 0,
    };
    let mut words = vec![0; data_words + OVERHEAD_WORDS];
    header.emit(0, data_words, &mut words, |data| {
        for (word, value) in data.iter_mut().zip(trigger as u32 * 1000..) {
            *word = value;
        }
    });
    words
}

/// Its words on the line.
pub(crate) fn block(fragment: &[u32]) -> Vec<LineWord> {
    let data = fragment.iter().map(|word| LineWord::Data(*word));
    [BEGIN].into_iter().chain(data).chain([END]).collect()
}
