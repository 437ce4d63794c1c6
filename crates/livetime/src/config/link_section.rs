//! The `[[link]]` tables: the trigger link, the data links, and the readout units they end at.
//!
//! One table stands for `count` links with consecutive source ids. The readout units have no table
//! of their own: they are those that links go to.

use std::collections::BTreeMap;
use std::path::PathBuf;

use livetime_node::DataLinkConfig;
use livetime_node::link::transport::DATAGRAM_WORDS;
use livetime_node::link::{LinkTransport, UdpConfig, frames_file};
use livetime_readout::LinkConfig;
use livetime_wire::fragment::CrcCheck;
use livetime_wire::link_frame::DATA_WORDS_MAX;
use livetime_wire::message::FRAGMENT_PAGES_MAX;
use livetime_wire::{ByteSize, Problem, SourceId, UnitId, UnitKind};

use super::document::{Findings, Section};
use super::problem_code::{
    LINK_KIND, LINK_TARGET, ONE_OF, OUT_OF_RANGE, SOURCE_ID_TWICE, UNIT_GAP,
};

/// The unit at the near end of the trigger link.
const TRIGGER_NODE: &str = "trg0";
/// Kinds of link that other keys depend on.
const EMULATED: &str = "emulated";
const FILE: &str = "file";
/// Pages of a trigger link: packets are small and never wait for the event builder.
const TRIGGER_PAGES: u32 = 256;

/// One table as it is written.
#[derive(Debug)]
pub(crate) struct LinkTable {
    /// Its key path.
    pub(crate) path: String,
    to: String,
    source: u32,
    count: u32,
    /// The receiver of each of its links.
    pub(crate) link: LinkConfig,
    /// What they travel over; a file's path is the folder of the files.
    transport: LinkTransport,
}

impl LinkTable {
    /// What is wrong with the sockets of its links.
    pub(crate) fn validate_transport(&self) -> Vec<Problem> {
        match &self.transport {
            LinkTransport::Udp { config, .. } => config.validate(&self.path),
            _ => Vec::new(),
        }
    }

    /// The transport of the link of one source.
    fn transport_of(&self, source: SourceId) -> LinkTransport {
        match &self.transport {
            LinkTransport::File { path } => LinkTransport::File {
                path: frames_file(path, source),
            },
            other => other.clone(),
        }
    }
}

/// All links by what they end at.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// The trigger link, if there is one.
    pub(crate) trigger: Option<LinkConfig>,
    /// The key path of its table.
    pub(crate) trigger_path: String,
    /// The data links, in the order in which an event's objects are spread over them.
    pub(crate) data: Vec<DataLinkConfig>,
    /// The key path of the table of each data link.
    pub(crate) data_paths: Vec<String>,
    /// Whether every table could be read and says where its links go, so that what is missing is missing.
    pub(crate) are_placed: bool,
}

/// The index of a readout unit by its name, in the one form that the unit has.
pub(crate) fn readout_index(name: &str) -> Option<u16> {
    let index = name
        .strip_prefix(UnitKind::Readout.prefix())?
        .parse()
        .ok()?;
    (UnitId::readout(index).to_string() == name).then_some(index)
}

/// Reads all tables; whether each of them could be read.
pub(crate) fn read_links(
    root: &mut Section<'_, '_>,
    findings: &Findings,
) -> (Vec<LinkTable>, bool) {
    let tables = root.sections("link");
    let written = tables.len();
    let tables = tables.into_iter();
    let read: Vec<_> = tables
        .filter_map(|link| read_link(link, findings))
        .collect();
    let are_read = read.len() == written;
    (read, are_read)
}

fn read_link(mut section: Section<'_, '_>, findings: &Findings) -> Option<LinkTable> {
    let path = section.path().to_owned();
    section.require(
        "to",
        "the unit at its near end, such as \"ru0\" or \"trg0\"",
    );
    section.require("source_id", "the source at its far end, such as 0x510000");
    let to = section.text("to");
    let source = section.integer("source_id", 0..=u64::from(u32::MAX));
    let is_trigger = to.as_deref() == Some(TRIGGER_NODE);
    let most = if is_trigger { 1 } else { 4096 };
    let count = section.integer("count", 1..=most).unwrap_or(1);
    let mut link = LinkConfig::default();
    if is_trigger {
        link.pages = TRIGGER_PAGES;
    }
    let mut page = ByteSize(u64::from(link.page_words) * 4);
    section.quantity("page", &mut page);
    link.page_words = words(page, "page", SIZES, &section, findings);
    let mut fragment_max = ByteSize(u64::from(link.page_words) * 4 * FRAGMENT_PAGES_MAX as u64);
    section.quantity("fragment_max", &mut fragment_max);
    link.fragment_words_max = words(fragment_max, "fragment_max", SIZES, &section, findings);
    for (key, field) in [
        ("pages", &mut link.pages),
        ("request_depth", &mut link.request_depth),
        ("acknowledge_depth", &mut link.acknowledge_depth),
        ("xoff_below", &mut link.xoff_below),
        ("xon_above", &mut link.xon_above),
        ("words_in_flight", &mut link.words_in_flight),
    ] {
        if let Some(value) = section.integer(key, 0..=1 << 24) {
            *field = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    if section.switch("crc") == Some(false) {
        link.crc = CrcCheck::Off;
    }
    let transport = match is_trigger {
        true => LinkTransport::Emulated,
        false => read_transport(&mut section, findings),
    };
    let last = source.map_or(0, |first| first + count - 1);
    let count = if last <= u64::from(u32::MAX) {
        count
    } else {
        findings.report(Problem::new(
            OUT_OF_RANGE,
            section.key_path("count"),
            count,
            "source ids up to 0xffffffff",
            "lower `source_id` or `count`: the links of a table have consecutive source ids",
        ));
        // Those beyond would all have the last id, which is no problem of its own.
        1
    };
    section.finish();
    Some(LinkTable {
        path,
        to: to?,
        source: u32::try_from(source?).ok()?,
        count: u32::try_from(count).ok()?,
        link,
        transport,
    })
}

/// Reads `kind` and the keys that belong to it.
fn read_transport(section: &mut Section<'_, '_>, findings: &Findings) -> LinkTransport {
    let mut config = UdpConfig::default();
    let mut datagram = ByteSize(4 * DATAGRAM_WORDS as u64);
    section.quantity("datagram", &mut datagram);
    let allowed = format!(
        "a multiple of 4 B from 4 B to {:#}",
        ByteSize(4 * DATA_WORDS_MAX as u64)
    );
    config.data_words_max = words(datagram, "datagram", &allowed, section, findings) as usize;
    let mut buffer = ByteSize(config.buffer_bytes as u64);
    section.quantity("socket_buffer", &mut buffer);
    config.buffer_bytes = usize::try_from(buffer.0).unwrap_or(usize::MAX);
    if let Some(window) = section.integer("window", 0..=1 << 24) {
        config.window = window as usize;
    }
    section.quantity("patience", &mut config.patience);
    let kinds = [EMULATED, "udp", "tcp", FILE].map(|name| (name, name));
    let kind = section.choice("kind", &kinds).unwrap_or(EMULATED);
    let of_udp = ["datagram", "socket_buffer", "window", "patience"];
    section.refuse_others("kind", kind, &of_udp.map(|key| (key, &["udp"][..])));
    if kind == FILE {
        section.require("frames", "the folder of the files, such as \"recorded\"");
    }
    let frames = section.plain_text("frames").map(PathBuf::from);
    if frames.is_some() && kind != FILE && !section.is_unread("kind") {
        findings.report(Problem::new(
            LINK_KIND,
            section.key_path("frames"),
            format!("with `kind = \"{kind}\"`"),
            "only with `kind = \"file\"`",
            "write `kind = \"file\"` to play the files, or remove `frames`",
        ));
    }
    match kind {
        "udp" => LinkTransport::Udp {
            config,
            datagram_words: config.data_words_max,
        },
        "tcp" => LinkTransport::Tcp,
        // Without a folder there is a problem already; the link is one all the same.
        FILE => LinkTransport::File {
            path: frames.unwrap_or_default(),
        },
        _ => LinkTransport::Emulated,
    }
}

/// Sizes of pages and fragments.
const SIZES: &str = "a multiple of 4 B below 16 GiB";

/// A size as words; what is no whole number of words is a problem.
fn words(
    size: ByteSize,
    key: &str,
    allowed: &str,
    section: &Section<'_, '_>,
    findings: &Findings,
) -> u32 {
    let words = u32::try_from(size.0 / 4)
        .ok()
        .filter(|_| size.0.is_multiple_of(4));
    words.unwrap_or_else(|| {
        let help = "links carry words of 4 bytes";
        findings.report(Problem::new(
            OUT_OF_RANGE,
            section.key_path(key),
            format!("{size:#}"),
            allowed,
            help,
        ));
        1024
    })
}

/// Sorts links by what they end at.
pub(crate) fn place_links((tables, are_read): (&[LinkTable], bool), findings: &Findings) -> Links {
    let mut trigger = Vec::new();
    let (mut data, mut paths) = (Vec::<DataLinkConfig>::new(), Vec::new());
    let mut are_placed = are_read;
    for table in tables {
        if table.to == TRIGGER_NODE {
            trigger.push((table.link.clone(), table.path.clone()));
            continue;
        }
        let Some(unit) = readout_index(&table.to) else {
            are_placed = false;
            findings.report(Problem::new(
                LINK_TARGET,
                format!("{}.to", table.path),
                format!("\"{}\"", table.to),
                "\"trg0\" or a readout unit: \"ru0\", \"ru1\", ..",
                "connect the link to the trigger node or to a readout unit",
            ));
            continue;
        };
        for source in (0..table.count).map(|i| SourceId(table.source.saturating_add(i))) {
            if let Some(other) = data.iter().position(|link| link.source == source) {
                let path = format!("{}.source_id", table.path);
                let help = "the builder files fragments under their source id, so each has its own";
                let allowed = "an id that no other link has";
                let problem = Problem::new(SOURCE_ID_TWICE, path, source, allowed, help);
                let first = format!("{}.source_id", paths[other]);
                findings.report(problem.with_related(first, "first used here"));
            }
            data.push(DataLinkConfig {
                source,
                unit,
                link: table.link.clone(),
                transport: table.transport_of(source),
            });
            paths.push(table.path.clone());
        }
    }
    let (data, data_paths) = interleaved(data, paths);
    // One that could not be read, or goes nowhere, may be meant for the trigger node.
    if trigger.len() > 1 || (trigger.is_empty() && are_placed) {
        let found = format!("there {} times with `to = \"trg0\"`", trigger.len());
        let help = "write one `[[link]]` with `to = \"trg0\"`: triggers are decided on its packets";
        findings.report(Problem::new(ONE_OF, "link", found, "exactly one", help));
    }
    let (trigger, trigger_path) = trigger.pop().unzip();
    Links {
        trigger,
        trigger_path: trigger_path.unwrap_or_else(|| "link".to_owned()),
        data,
        data_paths,
        are_placed,
    }
}

/// The links in turn over the readout units: the first of each, the second of each, and so on.
///
/// The source puts object `i` of an event on link `i`, so that neighbours, such as the two muons
/// of a pair, come together only in the event builder.
fn interleaved(
    links: Vec<DataLinkConfig>,
    paths: Vec<String>,
) -> (Vec<DataLinkConfig>, Vec<String>) {
    let mut seen = BTreeMap::<u16, usize>::new();
    let mut all: Vec<_> = (links.into_iter().zip(paths))
        .map(|(link, path)| {
            let rank = seen.entry(link.unit).or_default();
            *rank += 1;
            ((*rank, link.unit), link, path)
        })
        .collect();
    all.sort_by_key(|(order, ..)| *order);
    all.into_iter().map(|(_, link, path)| (link, path)).unzip()
}

/// The sources of each readout unit.
pub(crate) fn units_of(links: &Links, findings: &Findings) -> Vec<Vec<SourceId>> {
    let are_placed = links.are_placed;
    let links = &links.data;
    let units = links.iter().map(|link| usize::from(link.unit) + 1).max();
    let mut units = vec![Vec::new(); units.unwrap_or(0)];
    for link in links {
        units[usize::from(link.unit)].push(link.source);
    }
    let mut empty = units.iter().enumerate().filter(|(_, s)| s.is_empty());
    if let Some((first, _)) = empty.next().filter(|_| are_placed) {
        let found = match empty.count() {
            0 => format!("without a link to ru{first}"),
            more => format!("without a link to ru{first} and {more} more"),
        };
        let help = "number the readout units from ru0 without gaps";
        let allowed = "a link to each unit";
        findings.report(Problem::new(UNIT_GAP, "link", found, allowed, help));
    }
    units
}
