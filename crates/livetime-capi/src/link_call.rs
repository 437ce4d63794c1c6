//! The functions of the link library: the calls of the cards' driver package.
//!
//! Each checks the pointers that it is given and does its work in [`Links`] under the guard of
//! [`crate::status`]. Links may be used by any thread, by one at a time.

use std::ffi::{CStr, c_char};

use crate::link::Links;
use crate::link_record::{LinkChannel, LinksConfig, PageBatch, PagesFilled};
use crate::status::{Failure, Status, guard};

/// Numbers of channels that one call takes at most: more than there are channels, so that what is
/// wrong among them is named, and few enough to be read before it is known that they are there.
const CHANNELS_GIVEN_MAX: usize = 64;

/// Opens the library on models of receiver cards and sets `*links`; all channels are disabled. On
/// an error `*links` is null. Links may be used by any thread, by one at a time; those of several
/// calls of this function know nothing of each other.
///
/// # Safety
/// `config` is null or valid for reading, `links` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_open(
    config: *const LinksConfig,
    links: *mut *mut Links,
) -> Status {
    guard(|| {
        if links.is_null() {
            return Err(Failure::null("links"));
        }
        // SAFETY: not null, and valid for writing by this function's contract.
        unsafe { links.write(std::ptr::null_mut()) };
        // SAFETY: null or valid for reading by this function's contract.
        let config = unsafe { config.as_ref() }.ok_or_else(|| Failure::null("config"))?;
        let opened = Links::open(config)?;
        // SAFETY: as above.
        unsafe { links.write(Box::into_raw(Box::new(opened))) };
        Ok(Status::Ok)
    })
}

/// Closes the library; its memory is gone then. Null is allowed.
///
/// # Safety
/// `links` is null or comes from `livetime_links_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_close(links: *mut Links) {
    guard(|| {
        if !links.is_null() {
            // SAFETY: made by `Box::into_raw` in `livetime_links_open` and not closed since, by
            // this function's contract.
            drop(unsafe { Box::from_raw(links) });
        }
        Ok(Status::Ok)
    });
}

/// Enables these channels, at most 64 numbers, and disables the others.
///
/// # Safety
/// `links` is null or open, `channels` null or valid for reading `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_init(
    links: *mut Links,
    channels: *const u32,
    count: usize,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        with(links, |links| {
            if channels.is_null() {
                return Err(Failure::null("channels"));
            }
            if count > CHANNELS_GIVEN_MAX {
                let text = format!("{count} channels, allowed are 0 to {CHANNELS_GIVEN_MAX}");
                return Err(Failure::new(Status::ErrorArgument, text));
            }
            // SAFETY: not null, and valid for `count` numbers by this function's contract.
            links.init(std::slice::from_raw_parts(channels, count))
        })
    }
}

/// Resets a card: the links of all its channels; pages given and not posted are the caller's again.
///
/// # Safety
/// `links` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_reset(links: *mut Links, card: u32) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { with(links, |links| links.reset(card)) }
}

/// Resets the link of a channel and waits until it is up.
///
/// # Safety
/// `links` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_link_reset(links: *mut Links, channel: u32) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { with(links, |links| links.link_reset(channel)) }
}

/// Reserves memory of a card, in whole pages in a row, and sets `*segment`.
///
/// # Safety
/// `links` is null or open, `name` a C string or null, `segment` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_segment_allocate(
    links: *mut Links,
    card: u32,
    bytes: u64,
    name: *const c_char,
    segment: *mut u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        give(links, segment, "segment", |links| {
            if name.is_null() {
                return Err(Failure::null("name"));
            }
            // SAFETY: not null, and a C string by this function's contract.
            let name = CStr::from_ptr(name).to_string_lossy();
            links.allocate(card, bytes, &name).map(Some)
        })
    }
}

/// Gives memory of a card back; refused while one of its pages is with a channel.
///
/// # Safety
/// `links` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_segment_free(
    links: *mut Links,
    card: u32,
    segment: u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { with(links, |links| links.free(card, segment)) }
}

/// Sets `*address` to the bus address of a segment; its pages follow one another from there.
///
/// # Safety
/// `links` is null or open, `address` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_segment_address(
    links: *mut Links,
    card: u32,
    segment: u32,
    address: *mut u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        give(links, address, "address", |links| {
            links.bus_address(card, segment).map(Some)
        })
    }
}

/// Sets `*data` to where `words` words at a bus address lie in this process; valid until the next
/// call with the same links.
///
/// # Safety
/// `links` is null or open, `data` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_data_at(
    links: *mut Links,
    address: u32,
    words: usize,
    data: *mut *const u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        give(links, data, "data", |links| {
            links.memory_at(address, words).map(Some)
        })
    }
}

/// Gives free pages to a channel and sets `*taken` to how many were taken, from the first on; they
/// are posted by the next `livetime_links_flush`. A page is taken if it starts in a segment of the
/// card and is with none of its channels. The first that is not ends the call with
/// `LIVETIME_STATUS_ERROR_ARGUMENT`; `*taken` pages before it are taken all the same. Fewer are
/// also taken when 32 wait already: the others stay with the caller, and that is no error.
///
/// # Safety
/// `links` is null or open, `pages` null or valid for reading, `taken` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_pages_in(
    links: *mut Links,
    pages: *const PageBatch,
    taken: *mut u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        with(links, |links| {
            // SAFETY: null or valid for writing by this function's contract.
            let taken = taken.as_mut().ok_or_else(|| Failure::null("taken"))?;
            *taken = 0;
            // SAFETY: null or valid for reading by this function's contract.
            let pages = pages.as_ref().ok_or_else(|| Failure::null("pages"))?;
            let (count, failure) = links.pages_in(pages)?;
            *taken = count;
            failure.map_or(Ok(()), Err)
        })
    }
}

/// Exchanges pages with the cards: posts those given, takes those filled.
///
/// # Safety
/// `links` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_flush(links: *mut Links) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { with(links, Links::flush) }
}

/// Fills in the filled pages of a channel, which are the caller's then.
///
/// # Safety
/// `links` is null or open, `pages` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_pages_out(
    links: *mut Links,
    channel: u32,
    pages: *mut PagesFilled,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        give(links, pages, "pages", |links| {
            links.pages_out(channel).map(Some)
        })
    }
}

/// Sets `*free` to how many more pages the next `livetime_links_flush` can post at a channel: free
/// slots of its request FIFO, less the pages that wait already. `livetime_links_pages_in` takes
/// more, up to 32 that wait until there are slots.
///
/// # Safety
/// `links` is null or open, `free` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_in_free(
    links: *mut Links,
    channel: u32,
    free: *mut u32,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        give(links, free, "free", |links| {
            links.in_free(channel).map(Some)
        })
    }
}

/// Fills in what is known of the channel at `index`, counted from 0 over the channels that there
/// are; `LIVETIME_STATUS_END` behind the last.
///
/// # Safety
/// `links` is null or open, `channel` null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_channel_at(
    links: *mut Links,
    index: usize,
    channel: *mut LinkChannel,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe { give(links, channel, "channel", |links| Ok(links.channel(index))) }
}

/// Puts a SLIDAS data source at a channel: pattern 1, 2, 3, 4 or 8, words of a block, blocks in
/// all. It sends at each `livetime_links_flush` as far as the card has pages.
///
/// # Safety
/// `links` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn livetime_links_connect_source(
    links: *mut Links,
    channel: u32,
    pattern: u32,
    words: u32,
    blocks: u64,
) -> Status {
    // SAFETY: the contracts are the same.
    unsafe {
        with(links, |links| {
            links.connect_source(channel, pattern, words, blocks)
        })
    }
}

/// Does `call` on the links.
///
/// # Safety
/// `links` is null, or comes from `livetime_links_open`, was not closed and is not used by another
/// thread meanwhile.
unsafe fn with(links: *mut Links, call: impl FnOnce(&mut Links) -> Result<(), Failure>) -> Status {
    guard(|| {
        // SAFETY: null or valid and not used elsewhere, by this function's contract.
        let links = unsafe { links.as_mut() }.ok_or_else(|| Failure::null("links"))?;
        links.enter(|links| call(links).map(|()| Status::Ok))
    })
}

/// Does `call` on the links and writes what it gives to `out`; nothing is written for `None` and
/// errors.
///
/// # Safety
/// As [`with`]; `out` is null or valid for writing.
unsafe fn give<T>(
    links: *mut Links,
    out: *mut T,
    name: &str,
    call: impl FnOnce(&mut Links) -> Result<Option<T>, Failure>,
) -> Status {
    guard(|| {
        // SAFETY: null or valid and not used elsewhere, by this function's contract.
        let links = unsafe { links.as_mut() }.ok_or_else(|| Failure::null("links"))?;
        if out.is_null() {
            return Err(Failure::null(name));
        }
        links.enter(|links| match call(links)? {
            Some(value) => {
                // SAFETY: not null, and valid for writing by this function's contract.
                unsafe { out.write(value) };
                Ok(Status::Ok)
            }
            None => Ok(Status::End),
        })
    })
}
