//! What front-ends of users send: no words panic, what is read has the words that it came from, and
//! whatever they send in whatever order, each frame that is kept is handed on once or discarded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use livetime_source::{FrontEndEvents, FrontEndEventsConfig, SourceEvent};
use livetime_wire::front_end_frame::{
    ANSWER_WORDS, FrameContent, FrontEndAnswer, FrontEndFrame, HEADER_WORDS, MAGIC,
};
use livetime_wire::{DurationNs, RunNs, RunNumber, SourceId};

const SOURCES: [SourceId; 2] = [SourceId(1), SourceId(2)];

fuzz_target!(|data: &[u8]| {
    let words = livetime_fuzz::words(data);
    if let Some(answer) = words.first_chunk::<ANSWER_WORDS>()
        && let Some(read) = FrontEndAnswer::parse(answer)
    {
        assert_eq!(read.emit(), *answer);
    }
    let config = FrontEndEventsConfig {
        queue: 3,
        wait: DurationNs(4),
    };
    let mut events = FrontEndEvents::new(&config, RunNumber(1), &SOURCES, 40);
    let mut event = SourceEvent::new();
    let mut rest = &words[..];
    let mut now = RunNs(0);
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER_WORDS>() {
        let mut header = *header;
        // Random words would hardly ever be a frame of one of the sources.
        header[0] = MAGIC;
        header[2] %= 4;
        header[5] = 0;
        now = RunNs(now.0 + u64::from(header[6] % 3));
        rest = behind;
        let Ok(frame) = FrontEndFrame::parse(&header) else {
            continue;
        };
        let known = if frame.content == FrameContent::End {
            6
        } else {
            HEADER_WORDS
        };
        assert_eq!(frame.emit()[..known], header[..known]);
        if let Ok(words) = events.check(&frame)
            && let Some((data, behind)) = rest.split_at_checked(words)
        {
            events.handle_frame(now, &frame, data);
            rest = behind;
        }
        if events.is_ready(now) {
            events.begin(&mut event);
            events.release();
        }
        let counts = events.counts();
        assert_eq!(counts.kept, counts.used + events.waiting());
    }
    events.end();
    assert_eq!(events.waiting(), 0);
});
