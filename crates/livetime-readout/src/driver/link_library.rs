//! Open, init, reset, pages in, flush, pages out: a program's view of all its link channels.
//!
//! Channels are numbered as the FILAR library numbers them: four to a card, the upper bits of a
//! number are the card, and a card with fewer channels leaves numbers out. Pages are numbered per
//! card, whose channels share its memory: a page is with one of them at most. Pages given with
//! [`pages_in`](LinkLibrary::pages_in) and pages filled wait in the library until
//! [`flush`](LinkLibrary::flush) exchanges both with the links. The bound of each queue is
//! [`PAGES_MAX`] pages; a full one leaves pages with the caller or the link, none is lost.

use std::collections::VecDeque;

use livetime_wire::{Problem, RunNs};

use crate::driver::notifier::{Notification, Notifier, NotifierCounters};
use crate::line::LinkStatus;
use crate::page_fifo::Completed;
use crate::page_link::{PageError, PageLink};

/// Numbers of channels that a card takes, whatever it has.
pub const CHANNELS_PER_CARD: u32 = 4;
/// Cards at most.
pub const CARDS_MAX: u32 = 16;
/// Pages that each queue of a channel holds at most, and that one call takes (MAXINFIFO).
pub const PAGES_MAX: usize = 32;

/// How the library is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkLibraryConfig {
    /// When a reader is woken. Default: it polls.
    pub notification: Notification,
}

impl LinkLibraryConfig {
    /// Every problem of the configuration; `path` is its key in the file.
    pub fn validate(&self, path: &str) -> Vec<Problem> {
        self.notification.validate(path)
    }
}

/// Why a call did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// There is no such channel.
    #[error("there is no channel {channel}: channel numbers are 4 x card + channel of the card")]
    NoChannel {
        /// The number.
        channel: u32,
    },
    /// There is no such card.
    #[error("there is no card {card}: {cards} are open, counted from 0")]
    NoCard {
        /// The card's number.
        card: u32,
        /// Cards that are open.
        cards: usize,
    },
    /// The channel was not enabled by `init`.
    #[error("channel {channel} is not enabled; enable it with init")]
    NotEnabled {
        /// The number.
        channel: u32,
    },
    /// More channels than cards can have.
    #[error("{found} channels, at most {most}")]
    TooMany {
        /// Channels given.
        found: usize,
        /// Channels that there can be.
        most: usize,
    },
    /// A link refused a page.
    #[error("channel {channel}: {error}")]
    Page {
        /// The channel.
        channel: u32,
        /// Why.
        error: PageError,
    },
}

/// What became of the pages given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagesIn {
    /// The first so many were taken; the others stay with the caller.
    pub taken: usize,
    /// Why the page behind those was not taken; `None` if all were, or there was no room for more.
    pub refused: Option<PageError>,
}

/// Pages that came filled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PagesOut {
    /// The pages, oldest first.
    pub pages: Vec<Completed>,
}

/// What is known of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelInfo {
    /// The channel's number.
    pub channel: u32,
    /// Its card.
    pub card: u32,
    /// Whether `init` enabled it.
    pub is_enabled: bool,
    /// Its link.
    pub status: LinkStatus,
    /// Pages that wait to be posted.
    pub waiting_in: usize,
    /// Filled pages that wait for `pages_out`.
    pub waiting_out: usize,
    /// Pages taken by `pages_in` so far.
    pub pages_in: u64,
    /// Pages given by `pages_out` so far.
    pub pages_out: u64,
    /// Pages that became the caller's again unfilled so far: waiting at a `reset`, or refused by
    /// the link at a `flush`. What `pages_in` counts and neither of the two is with the library.
    pub pages_returned: u64,
}

struct Channel<L> {
    link: L,
    is_enabled: bool,
    to_post: VecDeque<u32>,
    /// Pages with the link.
    posted: VecDeque<u32>,
    filled: VecDeque<Completed>,
    notifier: Notifier,
    pages_in: u64,
    pages_out: u64,
    pages_returned: u64,
}

impl<L> Channel<L> {
    fn pages_held(&self) -> impl Iterator<Item = u32> {
        let filled = self.filled.iter().map(|completed| completed.page);
        let unfilled = self.to_post.iter().chain(&self.posted).copied();
        unfilled.chain(filled)
    }
}

/// The library over a set of links, `None` where a card has no channel.
pub struct LinkLibrary<L: PageLink> {
    config: LinkLibraryConfig,
    channels: Vec<Option<Channel<L>>>,
    flushes: u64,
    /// A reader is to be woken, and no flush has said so yet.
    is_woken: bool,
}

impl<L: PageLink> LinkLibrary<L> {
    /// Opens the library on links in the order of their numbers, all disabled.
    ///
    /// # Errors
    /// [`LibraryError::TooMany`].
    pub fn open(
        config: LinkLibraryConfig,
        links: impl IntoIterator<Item = Option<L>>,
    ) -> Result<Self, LibraryError> {
        let channels: Vec<_> = links
            .into_iter()
            .map(|link| {
                link.map(|link| Channel {
                    link,
                    is_enabled: false,
                    to_post: VecDeque::with_capacity(PAGES_MAX),
                    posted: VecDeque::with_capacity(2 * PAGES_MAX),
                    filled: VecDeque::with_capacity(PAGES_MAX),
                    notifier: Notifier::new(config.notification),
                    pages_in: 0,
                    pages_out: 0,
                    pages_returned: 0,
                })
            })
            .collect();
        let most = (CARDS_MAX * CHANNELS_PER_CARD) as usize;
        if channels.len() > most {
            let found = channels.len();
            return Err(LibraryError::TooMany { found, most });
        }
        Ok(Self {
            config,
            channels,
            flushes: 0,
            is_woken: false,
        })
    }

    /// Enables these channels and disables the others.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`]; nothing changes then.
    pub fn init(&mut self, enabled: &[u32]) -> Result<(), LibraryError> {
        for channel in enabled {
            self.at(*channel)?;
        }
        for (number, channel) in (0..).zip(&mut self.channels) {
            if let Some(channel) = channel {
                channel.is_enabled = enabled.contains(&number);
            }
        }
        Ok(())
    }

    /// Resets a card: the links of all its channels. Takes back the pages that wait to be posted and
    /// returns them: they are the caller's again. Filled ones stay for [`pages_out`](Self::pages_out).
    ///
    /// # Errors
    /// [`LibraryError::NoCard`] if no channel has its number.
    pub fn reset(&mut self, now: RunNs, card: u32) -> Result<Vec<u32>, LibraryError> {
        let first = card.saturating_mul(CHANNELS_PER_CARD);
        let mut pages = Vec::new();
        let mut found = false;
        for number in first..first.saturating_add(CHANNELS_PER_CARD) {
            let Some(Some(channel)) = self.channels.get_mut(number as usize) else {
                continue;
            };
            found = true;
            channel.link.reset(now);
            channel.pages_returned += channel.to_post.len() as u64;
            pages.extend(channel.to_post.drain(..));
        }
        let cards = self.channels.len().div_ceil(CHANNELS_PER_CARD as usize);
        match found {
            true => Ok(pages),
            false => Err(LibraryError::NoCard { card, cards }),
        }
    }

    /// Resets the link of one channel.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`].
    pub fn link_reset(&mut self, now: RunNs, channel: u32) -> Result<(), LibraryError> {
        self.at_mut(channel)?.link.reset(now);
        Ok(())
    }

    /// The state of a channel's link.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`].
    pub fn link_status(&self, channel: u32) -> Result<LinkStatus, LibraryError> {
        Ok(self.at(channel)?.link.link_status())
    }

    /// Gives free pages to a channel; they are posted by the next [`flush`](Self::flush). A page
    /// that is with a channel of the card already is not taken, nor are those behind it.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`] or [`LibraryError::NotEnabled`].
    pub fn pages_in(&mut self, channel: u32, pages: &[u32]) -> Result<PagesIn, LibraryError> {
        let room = PAGES_MAX - self.enabled(channel)?.to_post.len();
        let card = channel / CHANNELS_PER_CARD;
        for (taken, page) in pages.iter().copied().take(room).enumerate() {
            if self.pages_held(card).any(|held| held == page) {
                let refused = Some(PageError::NotHandedOut { page });
                return Ok(PagesIn { taken, refused });
            }
            let state = self.at_mut(channel)?;
            state.to_post.push_back(page);
            state.pages_in += 1;
        }
        Ok(PagesIn {
            taken: pages.len().min(room),
            refused: None,
        })
    }

    /// Pages that are with the library: taken by [`pages_in`](Self::pages_in) of the channels of a
    /// card and not given by [`pages_out`](Self::pages_out) yet.
    pub fn pages_held(&self, card: u32) -> impl Iterator<Item = u32> {
        let first = card.saturating_mul(CHANNELS_PER_CARD) as usize;
        let channels = self.channels.iter().skip(first);
        let channels = channels.take(CHANNELS_PER_CARD as usize).flatten();
        channels.flat_map(Channel::pages_held)
    }

    /// Exchanges pages with the links: posts what fits, takes what is filled. Returns whether a
    /// reader is to be woken, as it is also when a channel has no room for another filled page.
    ///
    /// # Errors
    /// [`LibraryError::Page`] for the first page that a link refuses for good. Each such page is
    /// the caller's again and counted ([`ChannelInfo::pages_returned`]), all others are served. That
    /// a reader is to be woken the next flush without an error says.
    pub fn flush(&mut self, now: RunNs) -> Result<bool, LibraryError> {
        self.flushes += 1;
        let mut result = Ok(());
        for (number, channel) in (0..).zip(&mut self.channels) {
            let Some(channel) = channel.as_mut().filter(|channel| channel.is_enabled) else {
                continue;
            };
            while let Some(page) = channel.to_post.front().copied() {
                match channel.link.post(page) {
                    Err(PageError::RequestFull { .. }) => break,
                    Ok(()) => channel.posted.push_back(page),
                    Err(error) => {
                        channel.pages_returned += 1;
                        let channel = number;
                        result = result.and(Err(LibraryError::Page { channel, error }));
                    }
                }
                channel.to_post.pop_front();
            }
            let mut fragments = 0;
            while channel.filled.len() < PAGES_MAX
                && let Some(completed) = channel.link.poll()
            {
                fragments += 1;
                let mut posted = channel.posted.iter();
                if let Some(at) = posted.position(|page| *page == completed.page) {
                    channel.posted.remove(at);
                }
                channel.filled.push_back(completed);
            }
            channel.notifier.handle_completed(now, fragments);
            if channel.filled.len() == PAGES_MAX {
                channel.notifier.handle_full();
            }
            self.is_woken |= channel.notifier.poll_wake(now);
        }
        result.map(|()| core::mem::take(&mut self.is_woken))
    }

    /// Takes the filled pages of a channel.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`] or [`LibraryError::NotEnabled`].
    pub fn pages_out(&mut self, channel: u32, out: &mut PagesOut) -> Result<(), LibraryError> {
        out.pages.clear();
        let state = self.enabled(channel)?;
        state.pages_out += state.filled.len() as u64;
        out.pages.extend(state.filled.drain(..));
        Ok(())
    }

    /// Pages that can be given to a channel now and are all posted by the next
    /// [`flush`](Self::flush): free slots of its link, less what waits already. More are taken,
    /// [`PAGES_MAX`] at most, and wait in the library until the link has room.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`].
    pub fn in_free(&self, channel: u32) -> Result<usize, LibraryError> {
        let state = self.at(channel)?;
        let free = state.link.link_status().request_free as usize;
        let waiting = state.to_post.len();
        Ok(free.saturating_sub(waiting).min(PAGES_MAX - waiting))
    }

    /// What is known of all channels.
    pub fn info(&self) -> Vec<ChannelInfo> {
        let channels = (0..).zip(&self.channels);
        let there = channels.filter_map(|(number, channel)| Some((number, channel.as_ref()?)));
        there
            .map(|(number, channel)| ChannelInfo {
                channel: number,
                card: number / CHANNELS_PER_CARD,
                is_enabled: channel.is_enabled,
                status: channel.link.link_status(),
                waiting_in: channel.to_post.len(),
                waiting_out: channel.filled.len(),
                pages_in: channel.pages_in,
                pages_out: channel.pages_out,
                pages_returned: channel.pages_returned,
            })
            .collect()
    }

    /// Wake-ups and fragments of a channel.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`].
    pub fn notifier(&self, channel: u32) -> Result<NotifierCounters, LibraryError> {
        Ok(self.at(channel)?.notifier.counters())
    }

    /// Calls of [`flush`](Self::flush) so far.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// The configuration.
    pub fn config(&self) -> &LinkLibraryConfig {
        &self.config
    }

    /// A channel's link, for what only that kind of link can do.
    ///
    /// # Errors
    /// [`LibraryError::NoChannel`].
    pub fn link_mut(&mut self, channel: u32) -> Result<&mut L, LibraryError> {
        Ok(&mut self.at_mut(channel)?.link)
    }

    /// Closes the library and gives the links back.
    pub fn close(self) -> Vec<Option<L>> {
        let channels = self.channels.into_iter();
        channels
            .map(|channel| channel.map(|channel| channel.link))
            .collect()
    }

    fn at(&self, channel: u32) -> Result<&Channel<L>, LibraryError> {
        let found = self.channels.get(channel as usize).and_then(Option::as_ref);
        found.ok_or(LibraryError::NoChannel { channel })
    }

    fn at_mut(&mut self, channel: u32) -> Result<&mut Channel<L>, LibraryError> {
        let found = self.channels.get_mut(channel as usize);
        let found = found.and_then(Option::as_mut);
        found.ok_or(LibraryError::NoChannel { channel })
    }

    fn enabled(&mut self, channel: u32) -> Result<&mut Channel<L>, LibraryError> {
        let state = self.at_mut(channel)?;
        match state.is_enabled {
            true => Ok(state),
            false => Err(LibraryError::NotEnabled { channel }),
        }
    }
}

#[cfg(test)]
mod tests;
