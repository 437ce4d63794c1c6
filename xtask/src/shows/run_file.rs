//! A second, naive reader of run files: walks the records of an MCAP file and counts messages.
//!
//! It shares no code with the reader that it is compared with, understands uncompressed chunks
//! only, and checks no checksums. MCAP specification, sections "Format" and "Records".

use std::collections::BTreeMap;

const MAGIC: &[u8] = b"\x89MCAP0\r\n";
const OPCODE_CHANNEL: u8 = 0x04;
const OPCODE_MESSAGE: u8 = 0x05;
const OPCODE_CHUNK: u8 = 0x06;

/// Bytes of a chunk before the name of its compression: two times, a size and a CRC.
const CHUNK_HEAD_BYTES: usize = 8 + 8 + 8 + 4;

/// Messages by topic in the complete chunks of a file that may end anywhere.
pub(super) fn messages_by_topic(file: &[u8]) -> BTreeMap<String, usize> {
    let mut topics = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let Some(body) = file.strip_prefix(MAGIC) else {
        return counts;
    };
    for (opcode, record) in Records(body) {
        if opcode == OPCODE_CHUNK {
            count_chunk(record, &mut topics, &mut counts);
        } else if opcode == OPCODE_CHANNEL {
            remember_channel(record, &mut topics);
        }
    }
    counts
}

fn count_chunk(
    chunk: &[u8],
    topics: &mut BTreeMap<u16, String>,
    counts: &mut BTreeMap<String, usize>,
) {
    let Some((compression, rest)) = chunk.get(CHUNK_HEAD_BYTES..).and_then(text) else {
        return;
    };
    if !compression.is_empty() || rest.len() < 8 {
        return;
    }
    for (opcode, record) in Records(&rest[8..]) {
        if opcode == OPCODE_CHANNEL {
            remember_channel(record, topics);
        } else if opcode == OPCODE_MESSAGE
            && let Some(topic) = u16_at(record, 0).and_then(|channel| topics.get(&channel))
        {
            *counts.entry(topic.clone()).or_default() += 1;
        }
    }
}

fn remember_channel(record: &[u8], topics: &mut BTreeMap<u16, String>) {
    if let (Some(channel), Some((topic, _))) = (u16_at(record, 0), record.get(4..).and_then(text)) {
        topics.insert(channel, topic);
    }
}

/// Complete records: an opcode, a length, and as many bytes.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let opcode = *self.0.first()?;
        let length = u64::from_le_bytes(self.0.get(1..9)?.try_into().ok()?);
        let end = usize::try_from(length).ok()?.checked_add(9)?;
        let record = self.0.get(9..end)?;
        self.0 = &self.0[end..];
        Some((opcode, record))
    }
}

fn u16_at(record: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(record.get(at..at + 2)?.try_into().ok()?))
}

/// A text with its length before it, and what follows.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let text = bytes.get(4..4 + length)?;
    Some((
        String::from_utf8_lossy(text).into_owned(),
        &bytes[4 + length..],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(opcode: u8, content: &[u8]) -> Vec<u8> {
        [
            &[opcode][..],
            &(content.len() as u64).to_le_bytes(),
            content,
        ]
        .concat()
    }

    fn channel(id: u16, topic: &str) -> Vec<u8> {
        let length = (topic.len() as u32).to_le_bytes();
        record(
            OPCODE_CHANNEL,
            &[&id.to_le_bytes()[..], &[0, 0], &length, topic.as_bytes()].concat(),
        )
    }

    fn chunk(records: &[u8]) -> Vec<u8> {
        let length = (records.len() as u64).to_le_bytes();
        record(
            OPCODE_CHUNK,
            &[&[0; CHUNK_HEAD_BYTES + 4][..], &length, records].concat(),
        )
    }

    #[test]
    fn only_messages_of_complete_chunks_count_at_any_truncation() {
        let message = record(OPCODE_MESSAGE, &[7, 0, 1, 2, 3]);
        let first = chunk(&[channel(7, "events"), message.clone(), message.clone()].concat());
        let second = chunk(&message);
        let file = [
            MAGIC,
            &record(1, b"head"),
            &first,
            &second,
            &record(0x0f, b""),
        ]
        .concat();
        let first_end = MAGIC.len() + 13 + first.len();
        for end in 0..=file.len() {
            let count = messages_by_topic(&file[..end])
                .get("events")
                .copied()
                .unwrap_or(0);
            let expected = match end {
                _ if end < first_end => 0,
                _ if end < first_end + second.len() => 2,
                _ => 3,
            };
            assert_eq!(count, expected, "at {end}");
        }
    }
}
