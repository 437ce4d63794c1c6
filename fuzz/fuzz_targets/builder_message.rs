//! Builder messages: no words panic, and a message that parses survives being sent again, also by
//! reference and over another message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_wire::fragment_message::FragmentMessage;
use livetime_wire::message::{BuilderMessage, Envelope, FragmentDescriptor};
use livetime_wire::slink::FragmentStatus;
use livetime_wire::{SourceId, TriggerNumber, UnitId};

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    let parsed = Envelope::parse(&words);
    let mut over = any_fragment();
    assert_eq!(
        over.read(&words),
        parsed.as_ref().map(|_| ()).map_err(|error| *error)
    );
    let Ok(envelope) = parsed else {
        return;
    };
    assert_eq!(over, envelope);
    if let BuilderMessage::FragmentData { trigger, fragment } = &envelope.message {
        let by_reference = FragmentMessage {
            sender: envelope.sender,
            epoch: envelope.epoch,
            sequence: envelope.sequence,
            trigger: *trigger,
            fragment,
        };
        let mut again = Vec::new();
        by_reference.emit(&mut again);
        assert_eq!(again, envelope.to_words().to_vec());
    }
    assert_eq!(Envelope::parse(&envelope.to_words()), Ok(envelope));
});

/// A message that another one is read over.
fn any_fragment() -> Envelope {
    Envelope {
        sender: UnitId::readout(1),
        epoch: 2,
        sequence: 3,
        message: BuilderMessage::FragmentData {
            trigger: TriggerNumber(4),
            fragment: FragmentDescriptor {
                source: SourceId(5),
                pool: 6,
                words: 7,
                status: FragmentStatus::GOOD,
                crc: 8,
                pages: [9].into_iter().collect(),
            },
        },
    }
}
