//! Pages out onto a link: what SOLAR and each channel of QUEST do.
//!
//! A [`Transmitter`] has a FIFO of requests (a page, its words, whether control words go around it)
//! and sends them in order, paused by LFF# after the words of grace. It reads the words from page
//! memory as they leave and copies nothing. Registers are in [`crate::card::solar_card`] and
//! [`crate::card::quest_card`]; a source that frames words in memory of its own is
//! [`crate::SlinkSource`].

use std::collections::VecDeque;

use livetime_wire::slink::ControlWord;

use crate::line::{FlowControl, LineSlice, LinkState};
use crate::link_source::GRACE_WORDS_MAX;
use crate::page_fifo::RequestFull;
use crate::page_store::PageRead;

/// A page to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendRequest {
    /// Which page.
    pub page: u32,
    /// Its words to send.
    pub words: u32,
    /// The begin word goes before it.
    pub with_begin: bool,
    /// The end word goes after it.
    pub with_end: bool,
}

/// Counters of a transmitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransmitterCounters {
    /// Requests taken into the FIFO.
    pub requests: u64,
    /// Requests refused because the FIFO was full.
    pub requests_lost: u64,
    /// Requests sent whole.
    pub sent: u64,
    /// Requests lost because the link went down or was reset.
    pub lost: u64,
    /// Data words sent.
    pub data_words: u64,
    /// Control words sent.
    pub control_words: u64,
}

/// The position in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Begin,
    Word(u32),
    End,
}

/// Sends pages. `requests` = `sent` + `lost` + those in the FIFO.
#[derive(Debug, Clone)]
pub struct Transmitter {
    requests: VecDeque<SendRequest>,
    depth: usize,
    /// Position in the first request; `None` before its first word.
    next: Option<Next>,
    begin: ControlWord,
    end: ControlWord,
    link: LinkState,
    flow: FlowControl,
    grace_left: u32,
    counters: TransmitterCounters,
}

impl Transmitter {
    /// An idle transmitter on a link that is up, with a FIFO of `depth` requests.
    pub fn new(depth: u32) -> Self {
        Self {
            requests: VecDeque::with_capacity(depth as usize),
            depth: depth as usize,
            next: None,
            begin: ControlWord::BEGIN_FRAGMENT,
            end: ControlWord::END_FRAGMENT,
            link: LinkState::Up,
            flow: FlowControl::Xon,
            grace_left: 0,
            counters: TransmitterCounters::default(),
        }
    }

    /// Takes a request. While the link is down it is taken and lost; one of no words at all is sent
    /// at once, since no word would take it out of the FIFO.
    ///
    /// # Errors
    /// [`RequestFull`]; the request is counted and not taken.
    pub fn post(&mut self, request: SendRequest) -> Result<(), RequestFull> {
        if self.free() == 0 {
            self.counters.requests_lost += 1;
            return Err(RequestFull);
        }
        self.counters.requests += 1;
        match first(&request) {
            _ if self.link == LinkState::Down => self.counters.lost += 1,
            None => self.counters.sent += 1,
            Some(_) => self.requests.push_back(request),
        }
        Ok(())
    }

    /// The next words for the line, at most `words_max`.
    pub fn poll_line<'p, P: PageRead + ?Sized>(
        &self,
        pages: &'p P,
        words_max: usize,
    ) -> Option<LineSlice<'p>> {
        let words_max = match self.flow {
            FlowControl::Xon => words_max,
            FlowControl::Xoff => words_max.min(self.grace_left as usize),
        };
        let request = self.requests.front()?;
        if words_max == 0 {
            return None;
        }
        Some(match self.next.or(first(request))? {
            Next::Begin => LineSlice::Control(self.begin.with_errors(false, false)),
            Next::End => LineSlice::Control(self.end.with_errors(false, false)),
            Next::Word(at) => {
                let words = &pages.words(request.page)[at as usize..request.words as usize];
                LineSlice::Data(&words[..words.len().min(words_max)])
            }
        })
    }

    /// The line took the first `words` words of the last slice polled.
    ///
    /// # Panics
    /// If nothing was polled, or fewer words.
    pub fn handle_sent(&mut self, words: usize) {
        if words == 0 {
            return;
        }
        let request = *self.requests.front().expect("a request was polled");
        let next = self.next.or(first(&request));
        let after = match next.expect("a request in the FIFO has something to send") {
            Next::Begin => {
                self.counters.control_words += 1;
                after_words(&request, 0)
            }
            Next::Word(at) => {
                self.counters.data_words += words as u64;
                after_words(&request, at + words as u32)
            }
            Next::End => {
                self.counters.control_words += 1;
                None
            }
        };
        self.next = after;
        if after.is_none() {
            self.requests.pop_front();
            self.counters.sent += 1;
        }
        if self.flow == FlowControl::Xoff {
            let used = words as u32;
            let left = self.grace_left.checked_sub(used);
            self.grace_left = left.expect("at most the grace words are polled under LFF#");
        }
    }

    /// LFF# of the source card.
    pub fn handle_flow(&mut self, flow: FlowControl) {
        if flow == FlowControl::Xoff && self.flow == FlowControl::Xon {
            self.grace_left = GRACE_WORDS_MAX;
        }
        self.flow = flow;
    }

    /// LDOWN# of the source card: going down loses what is in the FIFO.
    pub fn handle_link(&mut self, link: LinkState) {
        self.link = link;
        if link == LinkState::Down {
            self.clear();
            self.flow = FlowControl::Xon;
        }
    }

    /// Empties the FIFO; what was in it is lost.
    pub fn clear(&mut self) {
        self.counters.lost += self.requests.len() as u64;
        self.requests.clear();
        self.next = None;
    }

    /// Sets the control words.
    pub fn expect(&mut self, begin: ControlWord, end: ControlWord) {
        (self.begin, self.end) = (begin, end);
    }

    /// The link's state.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// Free slots of the FIFO.
    pub fn free(&self) -> u32 {
        (self.depth - self.requests.len()) as u32
    }

    /// Whether nothing is being sent.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request being sent, or the next one.
    pub fn current(&self) -> Option<SendRequest> {
        self.requests.front().copied()
    }

    /// The counters.
    pub fn counters(&self) -> TransmitterCounters {
        self.counters
    }
}

/// What leaves first of a request; `None` if it has nothing to send.
fn first(request: &SendRequest) -> Option<Next> {
    match request {
        SendRequest {
            with_begin: true, ..
        } => Some(Next::Begin),
        _ => after_words(request, 0),
    }
}

fn after_words(request: &SendRequest, at: u32) -> Option<Next> {
    if at < request.words {
        Some(Next::Word(at))
    } else {
        request.with_end.then_some(Next::End)
    }
}

#[cfg(test)]
mod tests {
    use livetime_wire::slink::LineWord;

    use super::*;
    use crate::page_store::{HeapPages, PageStore};

    fn request(page: u32, words: u32, with_begin: bool, with_end: bool) -> SendRequest {
        SendRequest {
            page,
            words,
            with_begin,
            with_end,
        }
    }

    fn pages() -> HeapPages {
        let mut pages = HeapPages::new(0, 4, 16);
        for page in 0..4 {
            pages.words_mut(page).fill(page);
        }
        pages
    }

    fn send(transmitter: &mut Transmitter, words_max: usize) -> Vec<LineWord> {
        let (pages, mut sent) = (pages(), Vec::new());
        while let Some(slice) = transmitter.poll_line(&pages, words_max) {
            sent.extend(slice.iter());
            transmitter.handle_sent(slice.words());
        }
        sent
    }

    #[test]
    fn a_fragment_of_several_pages_is_framed_once_at_any_slice_size() {
        for words_max in [1, 3, 100] {
            let mut transmitter = Transmitter::new(15);
            transmitter.post(request(0, 16, true, false)).unwrap();
            transmitter.post(request(1, 16, false, false)).unwrap();
            transmitter.post(request(2, 4, false, true)).unwrap();
            transmitter.post(request(3, 0, true, true)).unwrap();
            let sent = send(&mut transmitter, words_max);
            assert_eq!(sent.len(), 36 + 4);
            let is_control = |word: &&LineWord| matches!(word, LineWord::Control(_));
            assert_eq!(sent.iter().filter(is_control).count(), 4);
            assert_eq!(sent[17], LineWord::Data(1));
            let counters = transmitter.counters();
            assert_eq!((counters.sent, counters.data_words), (4, 36));
            assert!(transmitter.is_idle());
        }
    }

    #[test]
    fn link_full_leaves_two_words_and_link_down_loses_the_fifo() {
        let mut transmitter = Transmitter::new(2);
        transmitter.post(request(0, 8, true, true)).unwrap();
        transmitter.post(request(1, 8, true, true)).unwrap();
        assert_eq!(
            transmitter.post(request(2, 8, true, true)),
            Err(RequestFull)
        );
        transmitter.handle_flow(FlowControl::Xoff);
        assert_eq!(send(&mut transmitter, 100).len(), 2);
        transmitter.handle_flow(FlowControl::Xon);
        transmitter.handle_sent(1);
        transmitter.handle_link(LinkState::Down);
        transmitter.post(request(2, 8, true, true)).unwrap();
        transmitter.handle_link(LinkState::Up);
        assert!(transmitter.is_idle());
        let counters = transmitter.counters();
        assert_eq!(counters.requests, counters.sent + counters.lost);
        assert_eq!((counters.lost, counters.requests_lost), (3, 1));
    }

    /// Given requests with nothing to put on the line, then they are sent at once, or lost with the
    /// link, and what is posted behind them is sent.
    #[test]
    fn a_request_of_no_words_holds_up_none_behind_it() {
        let mut transmitter = Transmitter::new(3);
        transmitter.post(request(0, 0, false, false)).unwrap();
        transmitter.post(request(1, 4, true, true)).unwrap();
        transmitter.post(request(2, 0, false, false)).unwrap();
        let (pages, mut words) = (pages(), 0);
        for _ in 0..3 {
            let slice = transmitter.poll_line(&pages, 100).expect("more to send");
            words += slice.words();
            transmitter.handle_sent(slice.words());
        }
        assert_eq!(words, 6);
        assert!(transmitter.is_idle());
        let counters = transmitter.counters();
        assert_eq!((counters.requests, counters.sent, counters.lost), (3, 3, 0));
        transmitter.handle_link(LinkState::Down);
        transmitter.post(request(0, 0, false, false)).unwrap();
        let counters = transmitter.counters();
        assert_eq!((counters.requests, counters.sent, counters.lost), (4, 3, 1));
    }
}
