//! The two cards of a duplex S-LINK and the line between them, pin by pin and clock by clock.
//!
//! [`CardLink`] is what lies between a [`SlinkSource`](crate::SlinkSource) and a
//! [`SlinkDestination`](crate::SlinkDestination) when words matter one by one: the source card's
//! buffer and LFF#, the line with its faults, the error bits that the destination card puts into
//! control words, LDOWN# and URESET# at both ends, the self-test, and the way back with XOFF and the
//! return lines. It knows no fragments, and a chain that needs speed goes without it. How the cards
//! differ is in [`crate::card_link_config`], what can go wrong in [`crate::line_fault`].
//!
//! The published texts say that XOFF makes LFF# of the far end follow; that the source card also
//! holds the words of its buffer back is our reading, without which XOFF could not be obeyed in
//! bounded time.

use std::collections::VecDeque;

use livetime_wire::slink::{ControlWord, LineWord};

use crate::card_link_config::{CardLinkConfig, ErrorReporting};
use crate::line::{FlowControl, LineSlice, LinkState};
use crate::line_fault::{LineFault, LineFaultPlan};
use crate::link_source::SourceTest;
use crate::reset_handshake::ResetPin;
use crate::return_channel::{ReturnChannel, ReturnWord};
use crate::self_test::{SelfTest, TestChecker, TestPattern};

/// What the user drives at the source card (LSC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePins {
    /// UD\[31:0\] and UCTRL#, if UWEN# is low.
    pub word: Option<LineWord>,
    /// UTEST#.
    pub test: SourceTest,
    /// URESET#.
    pub reset: ResetPin,
}

impl SourcePins {
    /// Nothing driven.
    pub const IDLE: Self = Self {
        word: None,
        test: SourceTest::Off,
        reset: ResetPin::Released,
    };
}

/// What the user drives at the destination card (LDC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationPins {
    /// UXOFF#, and URL\[3:0\].
    pub back: ReturnWord,
    /// UTDO#: what becomes of test words. [`SelfTest::Off`] counts as [`SelfTest::Check`].
    pub test: SelfTest,
    /// URESET#.
    pub reset: ResetPin,
}

impl DestinationPins {
    /// Nothing driven.
    pub const IDLE: Self = Self {
        back: ReturnWord::IDLE,
        test: SelfTest::Off,
        reset: ResetPin::Released,
    };
}

/// What the source card drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceSignals {
    /// LFF#: [`FlowControl::Xoff`] when asserted.
    pub full: FlowControl,
    /// LDOWN#.
    pub link: LinkState,
    /// LRL\[3:0\].
    pub return_lines: u8,
}

/// What the destination card drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationSignals {
    /// LD\[31:0\] and LCTRL#, if LWEN# is low.
    pub word: Option<LineWord>,
    /// LDERR# low with this word.
    pub has_error: bool,
    /// LDOWN#.
    pub link: LinkState,
}

/// Counters of a link's cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardLinkCounters {
    /// Words written by the user while the link was up.
    pub words_written: u64,
    /// Words put on the line; the numbers of [`LineFaultPlan::fault`].
    pub words_sent: u64,
    /// Words delivered to the user at the far end.
    pub words_delivered: u64,
    /// Words written although the buffer was full, lost: more than the words of grace were used.
    pub overruns: u64,
    /// Words written while the link was down, lost.
    pub words_while_down: u64,
    /// Words in the buffer or on the line when the link went down, lost.
    pub words_lost: u64,
    /// Of all these lost words, control words with the user bits of an end word: each is a fragment
    /// that its source counted as sent.
    pub end_words_lost: u64,
    /// Faults of the line, those of return words apart.
    pub faults: u64,
    /// Times that the link went down.
    pub link_downs: u64,
}

/// What a place on the line carries.
#[derive(Debug, Clone, Copy)]
enum Carried {
    User(LineWord),
    Test(LineWord),
    /// A word was here.
    Gone,
    /// The source card has left the self-test.
    TestEnd,
}

/// A place on the line.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    arrives: u64,
    carried: Carried,
    is_damaged: bool,
    /// The data block that this place belongs to is not whole.
    damages_block: bool,
}

/// State of one card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Card {
    reset: ResetPin,
    /// Clocks until it is ready.
    starting: u32,
}

impl Card {
    /// Takes the pin; whether a reset begins.
    fn clock(&mut self, pin: ResetPin, start_up_clocks: u32) -> bool {
        let begins = pin == ResetPin::Driven && self.reset == ResetPin::Released;
        self.reset = pin;
        if begins {
            self.starting = start_up_clocks;
        } else {
            self.starting = self.starting.saturating_sub(1);
        }
        begins
    }
}

/// A duplex link: source card, line, destination card.
///
/// ```
/// use livetime_readout::card_link::{CardLink, DestinationPins, SourcePins};
/// use livetime_readout::{CardLinkConfig, LineFaultPlan};
/// use livetime_wire::slink::LineWord;
///
/// let config = CardLinkConfig::default();
/// let mut link = CardLink::new(config, LineFaultPlan::none());
/// let word = Some(LineWord::Data(7));
/// link.clock(SourcePins { word, ..SourcePins::IDLE }, DestinationPins::IDLE);
/// let clocks = (0..).take_while(|_| {
///     let (_, far) = link.clock(SourcePins::IDLE, DestinationPins::IDLE);
///     far.word != word
/// });
/// // The clocks of writing and of delivery are counted too.
/// assert_eq!(clocks.count() as u32 + 2, config.latency_clocks);
/// ```
#[derive(Debug, Clone)]
pub struct CardLink {
    config: CardLinkConfig,
    faults: LineFaultPlan,
    now: u64,
    source: Card,
    destination: Card,
    is_plugged: bool,
    /// LDOWN# at the source card; it hears of the far end by the way back.
    source_link: LinkState,
    /// When the source card hears of it.
    source_hears: Option<(u64, LinkState)>,
    destination_link: LinkState,
    buffer: VecDeque<LineWord>,
    test: Option<TestPattern>,
    /// The destination card sees test words.
    is_tested: bool,
    checker: TestChecker,
    /// Hundredths of a clock for which the line is still busy.
    busy_x100: u64,
    line: VecDeque<Symbol>,
    block_damaged: bool,
    back: ReturnChannel,
    returned: ReturnWord,
    end: ControlWord,
    counters: CardLinkCounters,
}

impl CardLink {
    /// A link that is plugged in and up.
    pub fn new(config: CardLinkConfig, faults: LineFaultPlan) -> Self {
        let card = Card {
            reset: ResetPin::Released,
            starting: 0,
        };
        Self {
            faults,
            now: 0,
            source: card,
            destination: card,
            is_plugged: true,
            source_link: LinkState::Up,
            source_hears: None,
            destination_link: LinkState::Up,
            buffer: VecDeque::with_capacity(config.buffer_words as usize),
            test: None,
            is_tested: false,
            checker: TestChecker::new(config.width),
            busy_x100: 0,
            line: VecDeque::with_capacity(config.latency_clocks as usize + 3),
            block_damaged: false,
            back: ReturnChannel::new(config.return_period_x100, config.return_latency_clocks),
            returned: ReturnWord::IDLE,
            end: ControlWord::END_FRAGMENT,
            counters: CardLinkCounters::default(),
            config,
        }
    }

    /// One clock of 25 ns: what both users drive, and what both cards then drive.
    pub fn clock(
        &mut self,
        near: SourcePins,
        far: DestinationPins,
    ) -> (SourceSignals, DestinationSignals) {
        self.now += 1;
        let clocks = self.config.start_up_clocks;
        let near_resets = self.source.clock(near.reset, clocks);
        let far_resets = self.destination.clock(far.reset, clocks);
        if near_resets {
            self.back.clear();
            self.source_link = LinkState::Down;
            self.source_hears = None;
        }
        if near_resets || far_resets {
            self.go_down();
        }
        self.come_up();
        self.handle_test(near.test);
        if let Some(word) = near.word {
            self.write(word);
        }
        self.send();
        let destination = self.deliver(far.test);
        self.handle_back(far.back);
        let source = SourceSignals {
            full: self.full(),
            link: self.source_link(),
            return_lines: self.returned.lines,
        };
        (source, destination)
    }

    /// Pulls the fibre out.
    pub fn unplug(&mut self) {
        if self.is_plugged {
            self.is_plugged = false;
            self.go_down();
        }
    }

    /// Puts the fibre back; the link is up after the start-up time of the cards.
    pub fn plug(&mut self) {
        if !self.is_plugged {
            self.is_plugged = true;
            self.source.starting = self.config.start_up_clocks;
            self.destination.starting = self.config.start_up_clocks;
        }
    }

    /// The configuration.
    pub fn config(&self) -> &CardLinkConfig {
        &self.config
    }

    /// The counters.
    pub fn counters(&self) -> CardLinkCounters {
        self.counters
    }

    /// Return words lost on the way back.
    pub fn return_words_lost(&self) -> u64 {
        self.back.lost()
    }

    /// What the destination card has seen of the self-test (its error light).
    pub fn checker(&self) -> &TestChecker {
        &self.checker
    }

    /// Whether no word is in the cards or on the line.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.line.is_empty()
    }

    fn full(&self) -> FlowControl {
        let free = self.config.buffer_words - self.buffer.len() as u32;
        if self.returned.flow == FlowControl::Xoff || free < self.config.full_below {
            FlowControl::Xoff
        } else {
            FlowControl::Xon
        }
    }

    fn source_link(&self) -> LinkState {
        match self.test {
            Some(_) => LinkState::Down,
            None => self.source_link,
        }
    }

    /// The link is lost: what is under way is lost too, and the source card hears of it by the way
    /// back.
    fn go_down(&mut self) {
        let was_up = self.destination_link == LinkState::Up;
        self.counters.link_downs += u64::from(was_up);
        self.destination_link = LinkState::Down;
        self.block_damaged = false;
        self.is_tested = false;
        if self.source_link == LinkState::Up {
            let at = self.now + u64::from(self.config.return_latency_clocks.max(1));
            self.source_hears = Some((at, LinkState::Down));
        }
        let on_line = self
            .line
            .drain(..)
            .filter_map(|symbol| match symbol.carried {
                Carried::User(word) => Some(word),
                Carried::Test(_) | Carried::Gone | Carried::TestEnd => None,
            });
        for word in self.buffer.drain(..).chain(on_line) {
            self.counters.words_lost += 1;
            self.counters.end_words_lost += u64::from(is_end(word, self.end));
        }
    }

    fn come_up(&mut self) {
        if let Some((at, link)) = self.source_hears
            && at <= self.now
        {
            self.source_hears = None;
            self.source_link = link;
            if link == LinkState::Down {
                self.back.clear();
                self.returned = ReturnWord::IDLE;
            }
        }
        let ready = self.is_plugged && self.source.starting == 0 && self.destination.starting == 0;
        let settled = self.source_link == LinkState::Down && self.source_hears.is_none();
        if ready && settled && self.destination_link == LinkState::Down {
            self.destination_link = LinkState::Up;
            self.source_link = LinkState::Up;
        }
    }

    fn handle_test(&mut self, test: SourceTest) {
        if test == SourceTest::WalkingOne {
            let width = self.config.width;
            self.test.get_or_insert_with(|| TestPattern::new(width));
        } else if self.test.take().is_some() && self.destination_link == LinkState::Up {
            self.place(Carried::TestEnd, None);
        }
    }

    fn write(&mut self, word: LineWord) {
        let lost = if self.source_link() == LinkState::Down {
            &mut self.counters.words_while_down
        } else if self.destination_link == LinkState::Down {
            // The source card does not know yet that the link is down.
            &mut self.counters.words_lost
        } else if self.buffer.len() < self.config.buffer_words as usize {
            // Of a control word only bits 31:4 are the user's.
            self.buffer.push_back(match word {
                LineWord::Control(word) => LineWord::Control(word.with_errors(false, false)),
                data => data,
            });
            self.counters.words_written += 1;
            return;
        } else {
            &mut self.counters.overruns
        };
        *lost += 1;
        self.counters.end_words_lost += u64::from(is_end(word, self.end));
    }

    /// Puts the next word on the line if it is free and neither XOFF nor LDOWN# holds it back.
    fn send(&mut self) {
        self.busy_x100 = self.busy_x100.saturating_sub(100);
        if self.busy_x100 >= 100 || self.destination_link == LinkState::Down {
            return;
        }
        let is_free = self.returned.flow == FlowControl::Xon;
        let carried = match &mut self.test {
            // Words of the user that were under way go first.
            Some(pattern) if self.buffer.is_empty() => {
                let slice = pattern.poll_line(1).expect("one word was asked for");
                pattern.handle_sent(1);
                Carried::Test(slice.iter().next().expect("a slice of one word"))
            }
            _ if is_free => match self.buffer.pop_front() {
                Some(word) => Carried::User(word),
                None => return,
            },
            _ => return,
        };
        let fault = self.faults.fault(self.counters.words_sent);
        self.counters.words_sent += 1;
        self.counters.faults += u64::from(fault.is_some());
        self.place(carried, fault);
    }

    /// Puts a word on the line, or what a fault makes of it.
    fn place(&mut self, carried: Carried, fault: Option<LineFault>) {
        let is_data = match carried {
            Carried::User(word) | Carried::Test(word) => matches!(word, LineWord::Data(_)),
            Carried::Gone | Carried::TestEnd => true,
        };
        let mut symbol = Symbol {
            arrives: 0,
            carried,
            is_damaged: false,
            damages_block: false,
        };
        match fault {
            None => {}
            Some(LineFault::LinkLoss) => {
                self.occupy_line(symbol, is_data);
                self.go_down();
                let clocks = self.config.start_up_clocks;
                self.source.starting = clocks;
                self.destination.starting = clocks;
                return;
            }
            Some(LineFault::DropWord) => {
                symbol.carried = Carried::Gone;
                symbol.damages_block = is_data;
            }
            Some(LineFault::RepeatWord) => {
                symbol.damages_block = is_data;
                self.occupy_line(symbol, is_data);
            }
            Some(LineFault::FlipBit(bit)) => {
                symbol.is_damaged = true;
                symbol.carried = map_word(carried, |word| flipped(word, bit));
            }
            Some(LineFault::FlipControlFlag) => {
                symbol.is_damaged = is_data;
                symbol.damages_block = !is_data;
                symbol.carried = map_word(carried, |word| match word {
                    LineWord::Data(data) => LineWord::Control(ControlWord(data & !0xF)),
                    LineWord::Control(control) => LineWord::Data(control.0),
                });
            }
        }
        self.occupy_line(symbol, is_data);
    }

    fn occupy_line(&mut self, symbol: Symbol, is_data: bool) {
        let after_others = self.busy_x100 / 100;
        self.line.push_back(Symbol {
            arrives: self.now + after_others + u64::from(self.config.latency_clocks) - 1,
            ..symbol
        });
        self.busy_x100 += u64::from(match is_data {
            true => self.config.data_cost_x100,
            false => self.config.control_cost_x100,
        });
    }

    fn deliver(&mut self, test: SelfTest) -> DestinationSignals {
        let due = |symbol: &Symbol| symbol.arrives <= self.now;
        let mut signals = DestinationSignals {
            word: None,
            has_error: false,
            link: LinkState::Down,
        };
        if let Some(symbol) = self.line.front().copied().filter(due) {
            self.line.pop_front();
            match symbol.carried {
                Carried::User(word) => self.deliver_word(word, symbol, &mut signals),
                Carried::Test(word) => self.deliver_test(word, symbol, test, &mut signals),
                Carried::Gone => self.block_damaged |= symbol.damages_block,
                Carried::TestEnd => self.is_tested = false,
            }
        }
        if !self.is_tested {
            signals.link = self.destination_link;
        }
        signals
    }

    fn deliver_word(&mut self, word: LineWord, symbol: Symbol, signals: &mut DestinationSignals) {
        self.counters.words_delivered += 1;
        self.block_damaged |= symbol.damages_block;
        signals.word = Some(match word {
            LineWord::Data(_) => {
                self.block_damaged |= symbol.is_damaged;
                let is_by_word = self.config.reporting == ErrorReporting::Word;
                signals.has_error = is_by_word && (symbol.is_damaged || symbol.damages_block);
                word
            }
            LineWord::Control(word) => {
                let block_damaged = core::mem::take(&mut self.block_damaged);
                signals.has_error = block_damaged || symbol.is_damaged;
                LineWord::Control(word.with_errors(block_damaged, symbol.is_damaged))
            }
        });
    }

    /// Test words are checked, and kept from the user unless UTDO# is low.
    fn deliver_test(
        &mut self,
        word: LineWord,
        symbol: Symbol,
        test: SelfTest,
        signals: &mut DestinationSignals,
    ) {
        self.is_tested = true;
        let errors = self.checker.errors;
        let word = match word {
            LineWord::Control(word) => {
                LineWord::Control(word.with_errors(false, symbol.is_damaged))
            }
            data => data,
        };
        self.checker.handle_line(match &word {
            LineWord::Data(data) => LineSlice::Data(core::slice::from_ref(data)),
            LineWord::Control(word) => LineSlice::Control(*word),
        });
        signals.word = (test == SelfTest::CheckAndDeliver).then_some(word);
        signals.has_error = self.checker.errors > errors;
    }

    fn handle_back(&mut self, pins: ReturnWord) {
        if self.destination_link == LinkState::Down || self.source_link == LinkState::Down {
            self.returned = ReturnWord::IDLE;
            return;
        }
        let faults = &self.faults;
        self.returned = self
            .back
            .clock(self.now, pins, |n| faults.is_return_lost(n));
    }
}

fn is_end(word: LineWord, end: ControlWord) -> bool {
    matches!(word, LineWord::Control(word) if word.matches(end))
}

fn map_word(carried: Carried, change: impl FnOnce(LineWord) -> LineWord) -> Carried {
    match carried {
        Carried::User(word) => Carried::User(change(word)),
        Carried::Test(word) => Carried::Test(change(word)),
        Carried::Gone | Carried::TestEnd => carried,
    }
}

fn flipped(word: LineWord, bit: u8) -> LineWord {
    match word {
        LineWord::Data(data) => LineWord::Data(data ^ 1 << (bit % 32)),
        LineWord::Control(word) => LineWord::Control(ControlWord(word.0 ^ 1 << (4 + bit % 28))),
    }
}

#[cfg(test)]
mod tests;
