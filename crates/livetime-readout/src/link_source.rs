//! The sending end of a link: control words around the fragment's words, paused by LFF#.
//!
//! [`SlinkSource`] keeps only its position in the fragment; the words are offered again on each
//! poll. It does not buffer, does not compute checksums (they are in the fragment), and does not
//! know what carries the words. The other end is [`crate::link_destination`].

use livetime_wire::slink::ControlWord;
use livetime_wire::{DurationNs, LossCause, LossCounts, Problem, RunNs};

use crate::line::{FlowControl, LineBlock, LineSlice, LinkState, LinkStatus};
use crate::problem_code;
use crate::self_test::TestPattern;

/// Words that the S-LINK specification lets a source write after LFF# was asserted.
pub const GRACE_WORDS_MAX: u32 = 2;

/// The sending end of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLinkConfig {
    /// The word before each fragment, default 0xB0F00000; bits 3:0 are sent as 0.
    pub begin: ControlWord,
    /// The word after each fragment, default 0xE0F00000; bits 3:0 are sent as 0.
    pub end: ControlWord,
    /// Words still written after LFF# was asserted, 0 to 2, default 2 (a card's pipeline). More
    /// overrun the far end's buffer.
    pub grace_words: u32,
}

impl Default for SourceLinkConfig {
    fn default() -> Self {
        Self {
            begin: ControlWord::BEGIN_FRAGMENT,
            end: ControlWord::END_FRAGMENT,
            grace_words: GRACE_WORDS_MAX,
        }
    }
}

impl SourceLinkConfig {
    /// Every problem of the configuration; `path` is its key in the file, such as `link[3]`.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.begin.matches(self.end) {
            problems.push(Problem::new(
                problem_code::CONTROL_WORDS,
                format!("{path}.end"),
                format!("{:#010x}", self.end.0),
                "a word that differs from `begin` in bits 31:4",
                "set `end` to 0xe0f00000 and `begin` to 0xb0f00000 unless the card sends others",
            ));
        }
        if self.grace_words > GRACE_WORDS_MAX {
            problems.push(Problem::new(
                problem_code::GRACE_WORDS,
                format!("{path}.grace_words"),
                self.grace_words,
                format!("0 to {GRACE_WORDS_MAX}"),
                "set at most the two words that S-LINK allows after link full",
            ));
        }
        problems
    }
}

/// What became of a fragment handed to [`SlinkSource::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// It is being sent: poll until [`SlinkSource::is_idle`].
    Sending,
    /// The link is down: it is lost and counted, the words are no longer needed.
    Lost(LossCause),
    /// The fragment before is still being sent: nothing was taken, ask again later.
    Busy,
}

/// Counters of a sending end.
///
/// `handed` = `ended` + losses + (1 while a fragment is being sent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceCounters {
    /// Fragments handed to the link, lost ones included.
    pub handed: u64,
    /// Fragments whose end word the line took.
    pub ended: u64,
    /// Data words that the line took.
    pub data_words: u64,
    /// Control words that the line took.
    pub control_words: u64,
    /// Words of the self-test that the line took.
    pub test_words: u64,
    /// Times that LFF# was asserted.
    pub xoffs: u64,
    /// Words written after LFF# was asserted.
    pub grace_words: u64,
    /// Time with LFF# asserted.
    pub xoff_time: DurationNs,
    /// Times that the link went down.
    pub link_downs: u64,
    /// Resets asked.
    pub resets: u64,
}

/// Position in the fragment being sent, in words of the line: 0 is the begin word, `words` + 1 the
/// end word.
#[derive(Debug, Clone, Copy)]
struct Sending {
    words: usize,
    next: usize,
}

/// The sending end of a link.
///
/// For each fragment: [`begin`](Self::begin), then [`poll_line`](Self::poll_line) and
/// [`handle_sent`](Self::handle_sent) in turn until [`is_idle`](Self::is_idle). Polling changes
/// nothing, so a line that cannot take all of a slice says how much it took and polls again.
///
/// ```
/// use livetime_readout::{Begun, LineSlice, SlinkSource, SourceLinkConfig};
///
/// let fragment = [1, 2, 3];
/// let mut source = SlinkSource::new(SourceLinkConfig::default());
/// assert_eq!(source.begin(fragment.len()), Begun::Sending);
/// let mut words = 0;
/// while let Some(slice) = source.poll_line(&fragment, usize::MAX) {
///     words += slice.words();
///     source.handle_sent(slice.words());
/// }
/// assert!(source.is_idle());
/// assert_eq!(words, 5);
/// ```
#[derive(Debug, Clone)]
pub struct SlinkSource {
    config: SourceLinkConfig,
    link: LinkState,
    flow: FlowControl,
    /// Words that may still be written, while LFF# is asserted.
    grace_left: u32,
    xoff_since: RunNs,
    resetting: bool,
    test: Option<TestPattern>,
    sending: Option<Sending>,
    counters: SourceCounters,
    losses: LossCounts,
}

impl SlinkSource {
    /// An idle source on a link that is up.
    pub fn new(config: SourceLinkConfig) -> Self {
        Self {
            config,
            link: LinkState::Up,
            flow: FlowControl::Xon,
            grace_left: 0,
            xoff_since: RunNs(0),
            resetting: false,
            test: None,
            sending: None,
            counters: SourceCounters::default(),
            losses: LossCounts::new(),
        }
    }

    /// Hands over a fragment of `words` words.
    pub fn begin(&mut self, words: usize) -> Begun {
        if self.sending.is_some() {
            return Begun::Busy;
        }
        self.counters.handed += 1;
        if self.is_down() {
            self.losses.add(LossCause::LinkDown, 1);
            return Begun::Lost(LossCause::LinkDown);
        }
        self.sending = Some(Sending { words, next: 0 });
        Begun::Sending
    }

    /// Whether no fragment is being sent.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// The next words for the line, at most `words_max`; `None` when there is nothing to send or
    /// LFF# forbids it. `fragment` is the one that was begun (ignored when idle).
    ///
    /// # Panics
    /// If the length of `fragment` is not the one that was begun.
    pub fn poll_line<'a>(&self, fragment: &'a [u32], words_max: usize) -> Option<LineSlice<'a>> {
        if let Some(test) = &self.test {
            return test.poll_line(words_max);
        }
        let words_max = match self.flow {
            FlowControl::Xon => words_max,
            FlowControl::Xoff => words_max.min(self.grace_left as usize),
        };
        let Sending { words, next } = self.sending?;
        assert_eq!(fragment.len(), words, "another fragment than was begun");
        if words_max == 0 {
            return None;
        }
        let clean = |word: ControlWord| LineSlice::Control(word.with_errors(false, false));
        Some(if next == 0 {
            clean(self.config.begin)
        } else if next <= words {
            let rest = &fragment[next - 1..];
            LineSlice::Data(&rest[..rest.len().min(words_max)])
        } else {
            clean(self.config.end)
        })
    }

    /// The whole fragment as a block, for a line that can take one at once, with the same result as
    /// its slices; `None` unless all of it is still to be sent and nothing holds it up. What the line
    /// took is told by [`handle_sent`](Self::handle_sent), or by
    /// [`handle_block_sent`](Self::handle_block_sent) if it was all of it.
    ///
    /// # Panics
    /// As [`poll_line`](Self::poll_line).
    #[inline]
    pub fn poll_block<'a>(&self, fragment: &'a [u32]) -> Option<LineBlock<'a>> {
        let Sending { words, next } = self.sending?;
        if next > 0 || self.test.is_some() || self.flow == FlowControl::Xoff {
            return None;
        }
        assert_eq!(fragment.len(), words, "another fragment than was begun");
        let clean = |word: ControlWord| word.with_errors(false, false);
        Some(LineBlock {
            begin: clean(self.config.begin),
            data: fragment,
            end: clean(self.config.end),
        })
    }

    /// The line took all of the block polled.
    ///
    /// # Panics
    /// If there was none.
    #[inline]
    pub fn handle_block_sent(&mut self) {
        let sending = self.sending.take().expect("words of a fragment");
        assert_eq!(sending.next, 0, "a block was polled");
        self.counters.control_words += 2;
        self.counters.data_words += sending.words as u64;
        self.counters.ended += 1;
    }

    /// The line took the first `words` words of the last slice polled.
    ///
    /// # Panics
    /// If that is more than was polled.
    pub fn handle_sent(&mut self, words: usize) {
        if let Some(test) = &mut self.test {
            test.handle_sent(words);
            self.counters.test_words += words as u64;
            return;
        }
        if words == 0 {
            return;
        }
        let sending = self.sending.as_mut().expect("words of a fragment");
        let first = sending.next;
        sending.next += words;
        if first == 0 || first > sending.words {
            assert_eq!(words, 1, "a control word is one word");
            self.counters.control_words += 1;
        } else {
            assert!(sending.next <= sending.words + 1, "more words than polled");
            self.counters.data_words += words as u64;
        }
        if sending.next == sending.words + 2 {
            self.sending = None;
            self.counters.ended += 1;
        }
        if self.flow == FlowControl::Xoff {
            let used = u32::try_from(words).unwrap_or(u32::MAX);
            self.grace_left = self
                .grace_left
                .checked_sub(used)
                .expect("at most the grace words are polled under LFF#");
            self.counters.grace_words += words as u64;
        }
    }

    /// The return channel's state, level-like: telling the same state again changes nothing.
    pub fn handle_flow(&mut self, now: RunNs, flow: FlowControl) {
        if flow == self.flow {
            return;
        }
        self.flow = flow;
        match flow {
            FlowControl::Xoff => {
                self.counters.xoffs += 1;
                self.grace_left = self.config.grace_words;
                self.xoff_since = now;
            }
            FlowControl::Xon => self.counters.xoff_time.0 += now.since(self.xoff_since).0,
        }
    }

    /// The link's state (LDOWN#).
    ///
    /// Going down loses the fragment being sent: under [`LossCause::LinkDown`] if no word of it
    /// left, under [`LossCause::LinkTruncated`] otherwise. The return channel is lost too, so LFF#
    /// is released and must be stated anew when the link is up. Coming up ends a reset.
    #[inline]
    pub fn handle_link(&mut self, now: RunNs, link: LinkState) {
        if link == LinkState::Up {
            self.resetting = false;
        } else if self.link == LinkState::Up {
            self.counters.link_downs += 1;
            self.cut(now);
        }
        self.link = link;
    }

    /// Drives URESET#: the link counts as down until it is told to be up.
    #[inline]
    pub fn reset(&mut self, now: RunNs) {
        self.counters.resets += 1;
        self.handle_link(now, LinkState::Down);
        self.resetting = true;
    }

    /// Starts (UTEST# low) or ends the self-test. In self-test the link is down for fragments.
    #[inline]
    pub fn handle_test(&mut self, now: RunNs, test: SourceTest) {
        match test {
            SourceTest::Off => self.test = None,
            SourceTest::WalkingOne if self.test.is_none() => {
                self.cut(now);
                self.test = Some(TestPattern::default());
            }
            SourceTest::WalkingOne => {}
        }
    }

    /// The state of this end.
    pub fn link_status(&self) -> LinkStatus {
        LinkStatus {
            link: if self.is_down() {
                LinkState::Down
            } else {
                LinkState::Up
            },
            flow: self.flow,
            resetting: self.resetting,
            request_free: 0,
            acknowledge_filled: 0,
        }
    }

    /// The counters, the time in XOFF up to `now` included.
    pub fn counters(&self, now: RunNs) -> SourceCounters {
        let mut counters = self.counters;
        if self.flow == FlowControl::Xoff {
            counters.xoff_time.0 += now.since(self.xoff_since).0;
        }
        counters
    }

    /// Fragments lost here, by cause.
    pub fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// Ends the fragment being sent because the run is ended by force.
    #[inline]
    pub fn abort(&mut self) {
        if self.sending.take().is_some() {
            self.losses.add(LossCause::LinkAborted, 1);
        }
    }

    #[inline]
    fn is_down(&self) -> bool {
        self.link == LinkState::Down || self.test.is_some()
    }

    fn cut(&mut self, now: RunNs) {
        if let Some(Sending { next, .. }) = self.sending.take() {
            let cause = if next == 0 {
                LossCause::LinkDown
            } else {
                LossCause::LinkTruncated
            };
            self.losses.add(cause, 1);
        }
        self.handle_flow(now, FlowControl::Xon);
    }
}

/// What the sending end does in self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceTest {
    /// No test.
    Off,
    /// Sends the walking one.
    WalkingOne,
}

#[cfg(test)]
mod tests {
    use livetime_wire::slink::LineWord;

    use super::*;

    const FRAGMENT: [u32; 4] = [10, 11, 12, 13];

    fn send_all(source: &mut SlinkSource, words_max: usize) -> Vec<LineWord> {
        let mut words = Vec::new();
        while let Some(slice) = source.poll_line(&FRAGMENT, words_max) {
            words.extend(slice.iter());
            source.handle_sent(slice.words());
        }
        words
    }

    fn sending() -> SlinkSource {
        let mut source = SlinkSource::new(SourceLinkConfig::default());
        assert_eq!(source.begin(FRAGMENT.len()), Begun::Sending);
        source
    }

    #[test]
    fn a_block_is_what_the_slices_are() {
        let (mut by_block, mut by_slices) = (sending(), sending());
        let block = by_block.poll_block(&FRAGMENT).unwrap();
        let mut words = vec![LineWord::Control(block.begin)];
        words.extend(block.data.iter().copied().map(LineWord::Data));
        words.push(LineWord::Control(block.end));
        by_block.handle_block_sent();
        assert_eq!(words, send_all(&mut by_slices, usize::MAX));
        assert!(by_block.is_idle() && by_block.poll_block(&FRAGMENT).is_none());
        assert_eq!(by_block.counters(RunNs(0)), by_slices.counters(RunNs(0)));
    }

    #[test]
    fn there_is_no_block_of_a_fragment_that_is_held_up_or_begun() {
        let mut source = sending();
        source.handle_flow(RunNs(0), FlowControl::Xoff);
        assert!(source.poll_block(&FRAGMENT).is_none());
        source.handle_flow(RunNs(0), FlowControl::Xon);
        assert!(source.poll_block(&FRAGMENT).is_some());
        source.handle_sent(1);
        assert!(source.poll_block(&FRAGMENT).is_none());
        let mut source = sending();
        source.handle_test(RunNs(0), SourceTest::WalkingOne);
        assert!(source.poll_block(&FRAGMENT).is_none());
    }

    #[test]
    fn fragment_leaves_between_control_words_at_any_slice_size() {
        let whole = send_all(&mut sending(), usize::MAX);
        assert_eq!(whole.len(), 6);
        assert_eq!(whole[0], LineWord::Control(ControlWord::BEGIN_FRAGMENT));
        assert_eq!(whole[4], LineWord::Data(13));
        assert_eq!(whole[5], LineWord::Control(ControlWord::END_FRAGMENT));
        for words_max in 1..=4 {
            let mut source = sending();
            assert_eq!(send_all(&mut source, words_max), whole);
            let counters = source.counters(RunNs(0));
            assert_eq!((counters.handed, counters.ended), (1, 1));
            assert_eq!((counters.data_words, counters.control_words), (4, 2));
        }
    }

    #[test]
    fn line_may_take_part_of_a_slice() {
        let mut source = sending();
        source.handle_sent(1);
        source.handle_sent(3);
        assert_eq!(
            source.poll_line(&FRAGMENT, 10),
            Some(LineSlice::Data(&FRAGMENT[3..]))
        );
        source.handle_sent(0);
        assert!(!source.is_idle());
        assert_eq!(source.begin(1), Begun::Busy);
        assert_eq!(source.counters(RunNs(0)).handed, 1);
    }

    #[test]
    fn link_full_stops_within_the_words_of_grace_wherever_it_strikes() {
        for grace_words in 0..=GRACE_WORDS_MAX {
            for before in 0..6 {
                let mut source = SlinkSource::new(SourceLinkConfig {
                    grace_words,
                    ..SourceLinkConfig::default()
                });
                assert_eq!(source.begin(FRAGMENT.len()), Begun::Sending);
                for _ in 0..before {
                    assert!(source.poll_line(&FRAGMENT, 1).is_some());
                    source.handle_sent(1);
                }
                source.handle_flow(RunNs(100), FlowControl::Xoff);
                let after = send_all(&mut source, usize::MAX).len();
                assert_eq!(after, (grace_words as usize).min(6 - before));
                source.handle_flow(RunNs(150), FlowControl::Xoff);
                assert_eq!(source.counters(RunNs(160)).xoff_time, DurationNs(60));
                source.handle_flow(RunNs(170), FlowControl::Xon);
                assert_eq!(send_all(&mut source, 3).len() + after + before, 6);
                let counters = source.counters(RunNs(500));
                assert_eq!(counters.xoff_time, DurationNs(70));
                assert_eq!((counters.xoffs, counters.ended), (1, 1));
                assert_eq!(counters.grace_words, after as u64);
            }
        }
    }

    #[test]
    fn link_loss_is_named_by_where_it_cut() {
        for sent in 0..6 {
            let mut source = sending();
            for _ in 0..sent {
                source.handle_sent(1);
            }
            source.handle_link(RunNs(1), LinkState::Down);
            source.handle_link(RunNs(2), LinkState::Down);
            let cause = if sent == 0 {
                LossCause::LinkDown
            } else {
                LossCause::LinkTruncated
            };
            assert_eq!(source.losses().of(cause), 1);
            assert!(source.is_idle());
            assert_eq!(source.poll_line(&FRAGMENT, 10), None);
            assert_eq!(source.begin(4), Begun::Lost(LossCause::LinkDown));
            source.handle_link(RunNs(3), LinkState::Up);
            assert_eq!(source.begin(4), Begun::Sending);
            assert_eq!(send_all(&mut source, 2).len(), 6);
            let counters = source.counters(RunNs(4));
            assert_eq!((counters.handed, counters.link_downs), (3, 1));
            assert_eq!(counters.handed, counters.ended + source.losses().total());
        }
    }

    #[test]
    fn reset_holds_until_the_link_is_up_and_releases_link_full() {
        let mut source = sending();
        source.handle_flow(RunNs(0), FlowControl::Xoff);
        source.reset(RunNs(5));
        let status = source.link_status();
        assert_eq!((status.link, status.resetting), (LinkState::Down, true));
        assert_eq!(status.flow, FlowControl::Xon);
        source.handle_link(RunNs(6), LinkState::Down);
        assert!(source.link_status().resetting);
        source.handle_link(RunNs(7), LinkState::Up);
        let status = source.link_status();
        assert_eq!((status.link, status.resetting), (LinkState::Up, false));
        assert_eq!(source.losses().of(LossCause::LinkDown), 1);
        assert_eq!(source.counters(RunNs(9)).xoff_time, DurationNs(5));
    }

    #[test]
    fn self_test_sends_the_pattern_and_cuts_the_fragment() {
        let mut source = sending();
        source.handle_sent(1);
        source.handle_test(RunNs(0), SourceTest::WalkingOne);
        assert_eq!(source.losses().of(LossCause::LinkTruncated), 1);
        assert_eq!(source.begin(4), Begun::Lost(LossCause::LinkDown));
        let control = source.poll_line(&[], 50);
        assert_eq!(control, Some(LineSlice::Control(ControlWord(0))));
        source.handle_sent(1);
        assert_eq!(source.poll_line(&[], 50).map(|s| s.words()), Some(32));
        source.handle_test(RunNs(0), SourceTest::Off);
        assert_eq!(source.begin(4), Begun::Sending);
        assert_eq!(source.counters(RunNs(0)).test_words, 1);
    }

    #[test]
    fn abort_is_named() {
        let mut source = sending();
        source.abort();
        source.abort();
        assert_eq!(source.losses().of(LossCause::LinkAborted), 1);
        assert!(source.is_idle());
    }

    #[test]
    fn empty_fragment_is_two_control_words() {
        let mut source = SlinkSource::new(SourceLinkConfig::default());
        assert_eq!(source.begin(0), Begun::Sending);
        let mut count = 0;
        while let Some(slice) = source.poll_line(&[], 9) {
            assert!(matches!(slice, LineSlice::Control(_)));
            source.handle_sent(1);
            count += 1;
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn configuration_is_checked() {
        assert_eq!(SourceLinkConfig::default().validate("link[0]"), []);
        let config = SourceLinkConfig {
            begin: ControlWord(0x10),
            end: ControlWord(0x1F),
            grace_words: 3,
        };
        let codes: Vec<_> = config
            .validate("link[0]")
            .iter()
            .map(|p| p.code.code)
            .collect();
        assert_eq!(codes, ["L0107", "L0108"]);
    }
}
