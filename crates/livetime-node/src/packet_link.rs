//! The links of the decision loop: what comes over them travels whole in the slots of a ring.
//!
//! Trigger packets and replies are short, and the experiment waits for them. Their words stand behind
//! their acknowledge entry, so that they reach the other core with it: one wait for a cache line instead
//! of one for the entry, one for the page and one for its state. The page itself belongs to the link
//! alone and is free again at once; a full ring leaves it filled, and the link says XOFF as any other.
//!
//! Costs one copy of a packet, 136 bytes for a typical one; data links hand their pages over.

use livetime_readout::{HeapPages, LinkConfig, PageRead};
use livetime_shm::Producer;

use crate::completion::{COMPLETION_WORDS, Completion};
use crate::emulated_link::EmulatedLink;
use crate::message_ring::is_taken;
use crate::pooled_page::LinkStore;

/// A link with pages of its own.
pub type PacketLink = EmulatedLink<HeapPages>;

/// Words of a page, whatever is sent: as many as bus bursts of 64 bytes and a short packet want.
const PAGE_WORDS: u32 = 64;

/// The link `config` for packets of at most `words_max` words: its pages hold no more than one, so that
/// what is used stays in the caches.
pub fn config_for(config: &LinkConfig, words_max: usize) -> LinkConfig {
    let words_max = u32::try_from(words_max).unwrap_or(u32::MAX / 2);
    let page_words = words_max.max(PAGE_WORDS).next_multiple_of(16);
    let page_words = page_words.min(config.page_words);
    LinkConfig {
        page_words,
        fragment_words_max: config.fragment_words_max.min(page_words),
        ..config.clone()
    }
}

/// Words of a slot that takes whatever a page of the link holds, behind its entry.
pub fn slot_words(config: &LinkConfig) -> usize {
    COMPLETION_WORDS + config.page_words as usize
}

impl LinkStore for HeapPages {
    #[inline]
    fn take_back(&self, _page: u32) -> bool {
        // Nobody else reads them.
        true
    }
}

impl PacketLink {
    /// A link that is up.
    pub fn for_packets(config: LinkConfig) -> Self {
        let pages = HeapPages::new(0, config.pages, config.page_words);
        Self::on_pages(config, pages, 0)
    }

    /// Passes on what came over the link, as link `index` of its host, as far as `ring` has room;
    /// returns how many messages. Slots have [`slot_words`] words.
    ///
    /// A packet to a node that is gone, and a reply to a supervisor that is, leave their trigger
    /// without a decision: the supervisor, or who settles for it, counts it as `decision_timeout`,
    /// `decision_aborted` or `decision_lost`.
    #[inline]
    pub fn pass_on(&mut self, index: u16, ring: &mut Producer) -> usize {
        let mut passed = 0;
        while ring.has_room() {
            let Some(completed) = self.poll_completed() else {
                break;
            };
            let page = completed.page;
            let entry = Completion {
                link: index,
                completed,
            };
            let entry_words = entry.to_words();
            let words = &self.pages().words(page)[..completed.len_words as usize];
            let pushed = ring.try_push_with(COMPLETION_WORDS + words.len(), |slot| {
                let (front, behind) = slot.split_at_mut(COMPLETION_WORDS);
                // From the back: the host watches the first cache line.
                behind.copy_from_slice(words);
                front.copy_from_slice(&entry_words);
            });
            debug_assert!(is_taken(pushed), "a free slot was seen, and takes a page");
            let is_back = self.recycle(page);
            debug_assert!(is_back, "the page was the link's own");
            passed += 1;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use livetime_readout::FlowControl;
    use livetime_shm::{RingConfig, ring};
    use livetime_wire::RunNs;

    use super::*;

    #[test]
    fn packets_come_whole_and_in_order_and_a_full_ring_holds_them_up() {
        let config = LinkConfig {
            pages: 16,
            page_words: 64,
            fragment_words_max: 32,
            xoff_below: 4,
            xon_above: 8,
            ..LinkConfig::default()
        };
        let (mut out, mut packets) = ring(&RingConfig {
            slots: 16,
            slot_words: slot_words(&config) as u32,
        })
        .unwrap();
        let mut link = PacketLink::for_packets(config);
        let mut flow = FlowControl::Xon;
        let (mut sent, mut passed) = (0_u32, 0);
        while flow == FlowControl::Xon {
            assert!(sent < 100, "16 slots and 16 pages hold no more than 32");
            if link.is_idle() {
                let words = 1 + sent as usize % 32;
                link.send(|out| {
                    out.clear();
                    out.resize(words, sent);
                });
                sent += 1;
            }
            link.pump(RunNs(0));
            passed += link.pass_on(3, &mut out);
            flow = link.poll_flow(RunNs(0));
        }
        assert_eq!(passed, 16, "as many as there are slots");
        let mut received = 0;
        while received < sent {
            let came = packets.try_pop(|message| {
                let (entry, words) = Completion::parse_with_words(message).unwrap();
                assert_eq!(entry.link, 3);
                assert!(entry.completed.status.is_good());
                assert_eq!(words, vec![received; 1 + received as usize % 32]);
            });
            received += u32::from(came.unwrap().is_some());
            link.pump(RunNs(0));
            passed += link.pass_on(3, &mut out);
            link.poll_flow(RunNs(0));
        }
        assert_eq!((received, passed), (sent, sent as usize));
        assert_eq!(link.poll_flow(RunNs(0)), FlowControl::Xon);
    }
}
