//! What `livetime sim run` says of the links and buffers of a network.
//!
//! The document and the summary name the first few alone, so that they stay short for any network;
//! every link is in the table that `--links` writes, and in the map of the page while its cells can
//! be told apart. The counts are `livetime_fabric::network::LinkReport`.

use std::fmt::Write;

use livetime_fabric::network::topology::{Graph, LinkEnd};
use livetime_fabric::network::{BufferOwner, BufferUse, LinkReport, LinkUse, Spread};
use livetime_study::plot::{PALETTE, escape};
use serde_json::{Value, json};

/// Columns of the table of all links.
pub(super) const LINKS_HEADER: &str =
    "link,from,to,speed,use,blocked,head_of_line,rate_bits_per_s,delay_ns\n";
/// Links and buffers that the document names of each kind.
const NAMED_MAX: usize = 16;
/// Links that the summary names where nothing moves any more.
const HELD_MAX: usize = 8;
/// The most links of a map.
const MAP_LINKS_MAX: usize = 4096;
/// Cells of a line of a map, and the side of a cell with its gap.
const MAP_LINE: usize = 64;
const CELL: usize = 11;
/// Space of a map for the names of its stages.
const MAP_LEFT: usize = 120;

/// The keys `links` and `buffers` of the document; no `buffers` where there are none. `held` are those
/// links that packets wait for, where nothing moves any more.
pub(super) fn to_json(report: &LinkReport, is_deadlocked: bool) -> (Value, Option<Value>) {
    let named = |links: Vec<&LinkUse>| -> Vec<Value> {
        let link = |link: &&LinkUse| {
            json!({
                "from": end_name(link.link.from),
                "to": end_name(link.link.to),
                "use": report.share(link.busy),
                "blocked": report.share(link.blocked),
                "head_of_line": report.share(link.head_of_line),
            })
        };
        links.iter().map(link).collect()
    };
    let spread = |time: fn(&LinkUse) -> livetime_fabric::DurationPs| {
        spread_json(report.links.iter().map(|link| report.share(time(link))))
    };
    let held = report.links_waited_for().into_iter();
    let held = held.filter(|_| is_deadlocked).map(|(_, link)| link);
    let held = held.take(NAMED_MAX).collect();
    let links = json!({
        "count": report.links.len(),
        "use": spread(|link| link.busy),
        "blocked": spread(|link| link.blocked),
        "head_of_line": spread(|link| link.head_of_line),
        "busiest": named(report.busiest(NAMED_MAX)),
        "most_blocked": named(report.most_blocked(NAMED_MAX)),
        "held": named(held),
    });
    if report.buffers.is_empty() {
        return (links, None);
    }
    let fullest = report.fullest(NAMED_MAX);
    let buffer = |buffer: &&BufferUse| {
        json!({
            "of": owner_name(buffer.owner),
            "mean_bytes": buffer.mean_bytes,
            "max_bytes": buffer.max_bytes,
        })
    };
    let buffers = json!({
        "count": report.buffers.len(),
        "mean_bytes": spread_json(report.buffers.iter().map(|b| b.mean_bytes)),
        "max_bytes": spread_json(report.buffers.iter().map(|b| b.max_bytes as f64)),
        "fullest": fullest.iter().map(buffer).collect::<Vec<_>>(),
    });
    (links, Some(buffers))
}

fn spread_json(values: impl Iterator<Item = f64>) -> Value {
    let Spread { min, mean, max } = Spread::of(values);
    json!({ "min": min, "mean": mean, "max": max })
}

/// The line of the summary.
pub(super) fn to_text(report: &LinkReport) -> String {
    let Some(busiest) = report.busiest(1).first().copied() else {
        return String::new();
    };
    let mut text = format!(
        "  links             busiest {} ({:.1} % of the time)",
        link_name(busiest),
        100.0 * report.share(busiest.busy)
    );
    match report.most_blocked(1).first() {
        Some(link) => {
            text += &format!(
                ", most blocked behind {} ({:.1} %)\n",
                link_name(link),
                100.0 * report.share(link.blocked)
            );
        }
        None => text += ", none blocked\n",
    }
    text
}

/// The line of the summary where nothing moves any more: the first links that packets wait for, by
/// the names of their graph if there is one.
pub(super) fn held_text(report: &LinkReport, graph: Option<&Graph>) -> String {
    let name = |(number, link): (u32, &LinkUse)| {
        let statement = graph.and_then(|graph| graph.statement(number as usize));
        statement.map_or_else(|| link_name(link), |(_, name)| name)
    };
    let names: Vec<String> = report.links_waited_for().into_iter().map(name).collect();
    if names.is_empty() {
        return String::new();
    }
    let more = match names.len().saturating_sub(HELD_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let first = &names[..names.len().min(HELD_MAX)];
    format!(
        "  links             held while packets wait for them: {}{more}\n",
        first.join(", ")
    )
}

/// The table of all links.
pub(super) fn to_csv(report: &LinkReport) -> String {
    let mut text = LINKS_HEADER.to_owned();
    for (number, link) in report.links.iter().enumerate() {
        let _ = writeln!(
            text,
            "{number},{},{},{},{:.6},{:.6},{:.6},{},{}",
            end_name(link.link.from),
            end_name(link.link.to),
            link.bits_per_s as f64 / report.node_bits_per_s as f64,
            report.share(link.busy),
            report.share(link.blocked),
            report.share(link.head_of_line),
            link.bits_per_s,
            link.delay.0 / 1_000
        );
    }
    text
}

/// The part of the page: tables of the first few, and maps of all where they are not too many.
pub(super) fn to_html(report: &LinkReport) -> String {
    let mut html = "<h2>Links</h2>\n".to_owned();
    for (title, links) in [
        ("Busiest", report.busiest(NAMED_MAX)),
        ("Most blocked", report.most_blocked(NAMED_MAX)),
    ] {
        let _ = write!(
            html,
            "<h3>{title}</h3>\n<table>\n<tr><th>from</th><th>to</th><th>use [%]</th>\
             <th>blocked [%]</th><th>head of line [%]</th></tr>\n"
        );
        for link in links {
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td></tr>",
                end_name(link.link.from),
                end_name(link.link.to),
                100.0 * report.share(link.busy),
                100.0 * report.share(link.blocked),
                100.0 * report.share(link.head_of_line)
            );
        }
        html += "</table>\n";
    }
    if report.links.len() > MAP_LINKS_MAX {
        let _ = writeln!(
            html,
            "<p>{} links are too many for a map; <code>--links FILE.csv</code> writes them all.</p>",
            report.links.len()
        );
        return html;
    }
    html += &map(report, "use of each link", |link| report.share(link.busy));
    html += &map(report, "blocked behind each link", |link| {
        report.share(link.blocked)
    });
    html
}

/// A map: a cell for each link, in rows by how many links it is from the sources.
fn map(report: &LinkReport, title: &str, share: impl Fn(&LinkUse) -> f64) -> String {
    let stages = stages(&report.links);
    let lines: usize = stages.iter().map(|s| s.len().div_ceil(MAP_LINE)).sum();
    let (width, height) = (
        MAP_LEFT + MAP_LINE * CELL,
        40 + lines * CELL + 6 * stages.len(),
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" role=\"img\"><text x=\"0\" y=\"14\">{}: white \
         for 0 %, full colour for 100 % of the time; a cell says its number when pointed at</text>",
        escape(title)
    );
    let mut top = 28;
    for (stage, links) in stages.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">stage {stage}: {} links</text>",
            top + 9,
            links.len()
        );
        for (place, link) in links.iter().enumerate() {
            let link = &report.links[*link];
            let value = share(link);
            let _ = write!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\" fill-opacity=\"{:.3}\" \
                 stroke=\"#9c9ca1\" stroke-width=\"0.5\"><title>{}: {:.1} %</title></rect>",
                MAP_LEFT + place % MAP_LINE * CELL,
                top + place / MAP_LINE * CELL,
                PALETTE[2],
                value,
                escape(&link_name(link)),
                100.0 * value
            );
        }
        top += links.len().div_ceil(MAP_LINE) * CELL + 6;
    }
    svg += "</svg>\n";
    svg
}

/// Numbers of links by how many links they are from the nearest source; those that no source
/// reaches are left out.
fn stages(links: &[LinkUse]) -> Vec<Vec<usize>> {
    let element = |end: LinkEnd| match end {
        LinkEnd::Port { element, .. } => Some(element as usize),
        LinkEnd::Source(_) | LinkEnd::Destination(_) => None,
    };
    let ends = links.iter().flat_map(|link| [link.link.from, link.link.to]);
    let elements = ends.filter_map(element).max().map_or(0, |last| last + 1);
    let mut is_reached = vec![false; elements];
    let mut left: Vec<usize> = (0..links.len()).collect();
    let mut stages = Vec::new();
    loop {
        // Links of sources first, then those of elements that the stage before has reached.
        let (stage, rest): (Vec<usize>, Vec<usize>) = left.into_iter().partition(|link| {
            element(links[*link].link.from).map_or(stages.is_empty(), |from| is_reached[from])
        });
        if stage.is_empty() {
            return stages;
        }
        for link in &stage {
            if let Some(to) = element(links[*link].link.to) {
                is_reached[to] = true;
            }
        }
        stages.push(stage);
        left = rest;
    }
}

fn link_name(link: &LinkUse) -> String {
    format!("{} to {}", end_name(link.link.from), end_name(link.link.to))
}

fn end_name(end: LinkEnd) -> String {
    match end {
        LinkEnd::Source(source) => format!("source {source}"),
        LinkEnd::Port { element, port } => format!("element {element} port {port}"),
        LinkEnd::Destination(destination) => format!("destination {destination}"),
    }
}

fn owner_name(owner: BufferOwner) -> String {
    match owner {
        BufferOwner::Input { element, port } => format!("element {element} input {port}"),
        BufferOwner::Output { element, port } => format!("element {element} output {port}"),
        BufferOwner::Crosspoint {
            element,
            input,
            output,
        } => format!("element {element} input {input} output {output}"),
        BufferOwner::Element(element) => format!("element {element}"),
    }
}

#[cfg(test)]
mod tests {
    use livetime_fabric::DurationPs;
    use livetime_fabric::network::Topology;
    use livetime_fabric::network::topology::Wiring;

    use super::*;

    fn report(topology: &Topology) -> LinkReport {
        let link = |(number, link): (usize, &_)| LinkUse {
            link: *link,
            bits_per_s: 1_000,
            delay: DurationPs(0),
            busy: DurationPs(number as u64),
            blocked: DurationPs(0),
            head_of_line: DurationPs(0),
        };
        LinkReport {
            counted: DurationPs(1_000_000),
            node_bits_per_s: 1_000,
            links: topology.links().iter().enumerate().map(link).collect(),
            buffers: Vec::new(),
            waited_for: (0..10).collect(),
        }
    }

    #[test]
    fn a_map_has_every_link_in_its_stage_and_a_document_stays_short() {
        let delta = report(&Topology::delta(4, 3, &Wiring::Omega).unwrap());
        let sizes: Vec<usize> = stages(&delta.links).iter().map(Vec::len).collect();
        assert_eq!(sizes, [64; 4]);
        assert_eq!(to_html(&delta).matches("<rect").count(), 2 * 256);
        assert_eq!(to_csv(&delta).lines().count(), 257);
        let large = report(&Topology::delta(8, 4, &Wiring::Omega).unwrap());
        assert!(to_html(&large).contains("too many"));
        let held = held_text(&large, None);
        assert!(
            held.contains("source 7 to element 7 port 0, and 2 more"),
            "{held}"
        );
        let (links, buffers) = to_json(&large, true);
        assert_eq!(links["held"].as_array().map(Vec::len), Some(10));
        assert_eq!(to_json(&large, false).0["held"], json!([]));
        assert_eq!(links["busiest"].as_array().map(Vec::len), Some(16));
        assert_eq!(links["most_blocked"].as_array().map(Vec::len), Some(0));
        assert_eq!(buffers, None);
        assert!(to_text(&large).contains("busiest element 2047 port 7 to destination"));
    }

    #[test]
    fn elements_that_reach_each_other_are_walked_once() {
        let tree = report(&Topology::fat_tree(2, 3).unwrap());
        let stages = stages(&tree.links);
        assert_eq!(stages.iter().map(Vec::len).sum::<usize>(), tree.links.len());
        assert_eq!(stages[0].len(), 8);
    }
}
