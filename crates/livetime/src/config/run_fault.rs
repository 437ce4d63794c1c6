//! The `--fault` option: a link or a process that fails during the run.
//!
//! Links fail in the emulated front-end, processes by signals from the parent; both count from the
//! start of the run. What the run does about it is in `livetime_node::process::recovery`.

use livetime_node::chain_plan::role_of;
use livetime_node::event_fault::{EventFault, EventFaultKind};
use livetime_node::link::LinkTransport;
use livetime_node::process::{FaultTime, ProcessFault};
use livetime_node::role_ends::unit_of;
use livetime_node::stream_mender::StreamFault;
use livetime_node::{ChainConfig, LinkFault};
use livetime_wire::{DurationNs, RunNs, SourceId, TriggerNumber, UnitId};

use super::exact_time::parse_time;
use super::link_fault;

/// A fault as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunFault {
    /// A data link is down for a while.
    Link(LinkFault),
    /// All data links of a readout unit, or that of a source, are down for a while; `link` of the fault
    /// is not used.
    LinksOf { of: String, fault: LinkFault },
    /// A process is killed, or stopped for a while.
    Process(ProcessFault),
    /// The streams to a filter unit are cut; the unit itself goes on.
    Cut { role: String, at: FaultTime },
    /// Every filter unit that gets an event crashes or hangs.
    Event(EventFault),
}

/// The faults of a run by who makes them.
#[derive(Debug, Default)]
pub(crate) struct SortedFaults {
    pub(crate) links: Vec<LinkFault>,
    pub(crate) roles: Vec<ProcessFault>,
    pub(crate) events: Vec<EventFault>,
    pub(crate) streams: Vec<StreamFault>,
}

/// What a number of triggers ends with.
const TRIGGERS: &str = "triggers";
/// What the loss of a unit begins with, and what a number of what is told of it.
const LOSS_OF: &str = "loss-of:";
const NTH: char = '#';
const FORM: &str = "a fault is written link-down:0x510002@4s+1s, link-down:3@4s+1s or \
                    link-down:ru0@4s+1s (a source, a link, or all of a unit down at 4 s for 1 s), kill:bu1@5s or kill:bu1@5000triggers, stop:fu0@3s+2s (stopped at 3 s for \
                    2 s), kill:evm@loss-of:bu1 (when it is to hear that bu1 is lost), cut:fu0@3s \
                    (its streams), or crash:1234 and hang:1234 (what event 1234 does to its filter \
                    unit)";

/// Reads a fault.
///
/// # Errors
/// What is wrong with the text, and how a fault is written.
pub(crate) fn parse_fault(text: &str) -> Result<RunFault, String> {
    let Some((kind, rest)) = text.split_once(':') else {
        return Err(FORM.to_owned());
    };
    if let Some(kind) = event_fault_kind(kind) {
        let trigger = rest.parse().map(TriggerNumber);
        let trigger = trigger.map_err(|_| format!("\"{rest}\" is no event number; {FORM}"))?;
        return Ok(RunFault::Event(EventFault { trigger, kind }));
    }
    let (role, when) = rest.split_once('@').ok_or(FORM)?;
    let time = |text: &str| {
        parse_time(text).map_err(|error| format!("\"{text}\" is no time ({error}); {FORM}"))
    };
    let role = role.to_owned();
    match kind {
        "link-down" if role.starts_with("ru") || role.starts_with("0x") => {
            let fault = link_fault::parse_fault(&format!("link-down:0@{when}"))?;
            let of = match role
                .strip_prefix("0x")
                .map(|id| u32::from_str_radix(id, 16))
            {
                Some(Ok(id)) => SourceId(id).to_string(),
                Some(Err(_)) => return Err(format!("\"{role}\" is no source; {FORM}")),
                None => role,
            };
            Ok(RunFault::LinksOf { of, fault })
        }
        "link-down" => link_fault::parse_fault(text).map(RunFault::Link),
        "kill" => Ok(RunFault::Process(ProcessFault {
            role,
            at: fault_time(when, time)?,
            stopped: None,
        })),
        // Nobody is told of the loss of a stream.
        "cut" if when.starts_with(LOSS_OF) => Err(FORM.to_owned()),
        "cut" => Ok(RunFault::Cut {
            role,
            at: fault_time(when, time)?,
        }),
        "stop" => {
            let (start, length) = when.split_once('+').ok_or(FORM)?;
            let length = time(length)?;
            if length == DurationNs(0) {
                return Err(format!(
                    "a role that is stopped for no time is not stopped; {FORM}"
                ));
            }
            Ok(RunFault::Process(ProcessFault {
                role,
                at: fault_time(start, time)?,
                stopped: Some(length),
            }))
        }
        _ => Err(FORM.to_owned()),
    }
}

/// A time, a number of triggers, or the loss of a unit.
fn fault_time(
    text: &str,
    time: impl FnOnce(&str) -> Result<DurationNs, String>,
) -> Result<FaultTime, String> {
    if let Some(loss) = text.strip_prefix(LOSS_OF) {
        let (unit, nth) = loss.split_once(NTH).unwrap_or((loss, "1"));
        let unit = unit_of(unit).ok_or_else(|| format!("\"{unit}\" is no unit; {FORM}"))?;
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or(FORM)?;
        return Ok(FaultTime::LossOf { unit, nth });
    }
    match text
        .strip_suffix(TRIGGERS)
        .map(|count| count.trim().parse())
    {
        Some(Ok(count)) => Ok(FaultTime::Triggers(count)),
        _ => Ok(FaultTime::At(RunNs(time(text)?.0))),
    }
}

fn time_text(at: FaultTime) -> String {
    match at {
        FaultTime::At(at) => exact_time(DurationNs(at.0)),
        FaultTime::Triggers(count) => format!("{count}{TRIGGERS}"),
        FaultTime::LossOf { unit, nth: 1 } => format!("{LOSS_OF}{unit}"),
        FaultTime::LossOf { unit, nth } => format!("{LOSS_OF}{unit}{NTH}{nth}"),
    }
}

/// A time in its largest whole unit, so that nothing of it is rounded away.
fn exact_time(time: DurationNs) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
    let whole = units.iter().find(|(ns, _)| time.0.is_multiple_of(*ns));
    let (ns, unit) = *whole.unwrap_or(&(1, "ns"));
    format!("{}{unit}", time.0 / ns)
}

fn event_fault_kind(word: &str) -> Option<EventFaultKind> {
    match word {
        "crash" => Some(EventFaultKind::Crash),
        "hang" => Some(EventFaultKind::Hang),
        _ => None,
    }
}

impl RunFault {
    /// The fault as it is written.
    pub(crate) fn to_text(&self) -> String {
        let span = |fault: &LinkFault| {
            let length = fault.until.since(fault.from);
            format!(
                "{}+{}",
                exact_time(DurationNs(fault.from.0)),
                exact_time(length)
            )
        };
        match self {
            Self::Link(fault) => format!("link-down:{}@{}", fault.link, span(fault)),
            Self::LinksOf { of, fault } => format!("link-down:{of}@{}", span(fault)),
            Self::Event(EventFault { trigger, kind }) => match kind {
                EventFaultKind::Crash => format!("crash:{trigger}"),
                EventFaultKind::Hang => format!("hang:{trigger}"),
            },
            Self::Cut { role, at } => format!("cut:{role}@{}", time_text(*at)),
            Self::Process(ProcessFault { role, at, stopped }) => {
                let at = time_text(*at);
                match stopped {
                    None => format!("kill:{role}@{at}"),
                    Some(time) => format!("stop:{role}@{at}+{}", exact_time(*time)),
                }
            }
        }
    }
}

/// The faults of a run by who makes them: links, processes, and events.
///
/// # Errors
/// Of each fault, what it names that the chain does not have, or cannot lose in this kind of run.
pub(crate) fn sort_faults(
    faults: &[RunFault],
    chain: &ChainConfig,
    processes: bool,
) -> Result<SortedFaults, String> {
    let mut sorted = SortedFaults::default();
    let added = faults.iter().map(|fault| {
        let added = sorted.add(fault, chain, processes);
        added.map_err(|reason| format!("--fault {}: {reason}", fault.to_text()))
    });
    let problems: Vec<String> = added.filter_map(Result::err).collect();
    match problems.is_empty() {
        true => Ok(sorted),
        false => Err(problems.join("\nerror: ")),
    }
}

impl SortedFaults {
    fn add(
        &mut self,
        fault: &RunFault,
        chain: &ChainConfig,
        processes: bool,
    ) -> Result<(), String> {
        match fault {
            RunFault::Link(fault) => self.links.push(link_fault_of(*fault, chain)?),
            RunFault::LinksOf { of, fault } => {
                for link in links_of(of, chain)? {
                    let fault = LinkFault { link, ..*fault };
                    self.links.push(link_fault_of(fault, chain)?);
                }
            }
            RunFault::Process(_) | RunFault::Event(_) if !processes => {
                return Err("it needs `--processes`: the roles of this run are threads".to_owned());
            }
            RunFault::Cut { role, at } => {
                self.streams
                    .push(stream_fault(chain, processes, (role, *at))?);
            }
            RunFault::Event(fault) => self.events.push(*fault),
            RunFault::Process(fault) => {
                let ids = chain.role_ids();
                let of_loss = match fault.at {
                    FaultTime::LossOf { unit, .. } => Some(role_of(unit)),
                    _ => None,
                };
                let mut named = std::iter::once(&fault.role).chain(&of_loss);
                if let Some(role) = named.find(|role| !ids.contains(role)) {
                    let known = ids.join(", ");
                    return Err(format!("there is no role {role}; roles are {known}"));
                }
                self.roles.push(fault.clone());
            }
        }
        Ok(())
    }
}

/// The data links of a readout unit or a source, of which there are some.
fn links_of(of: &str, chain: &ChainConfig) -> Result<Vec<usize>, String> {
    let all = chain.data_links.iter();
    let is_meant = all.map(|link| {
        let (unit, source) = (UnitId::readout(link.unit), link.source);
        unit.to_string() == of || source.to_string() == of
    });
    let links: Vec<usize> = (0..)
        .zip(is_meant)
        .filter_map(|(n, is)| is.then_some(n))
        .collect();
    if links.is_empty() {
        let sources = chain.data_links.iter().map(|link| link.source.to_string());
        let sources: Vec<String> = sources.collect();
        return Err(format!(
            "{of} has no data links; sources are {}",
            sources.join(", ")
        ));
    }
    Ok(links)
}

/// The fault of a link that is there and can go down.
fn link_fault_of(fault: LinkFault, chain: &ChainConfig) -> Result<LinkFault, String> {
    let link = fault.link;
    let Some(found) = chain.data_links.get(link) else {
        let last = chain.data_links.len().saturating_sub(1);
        return Err(format!(
            "there is no data link {link}; links are 0 to {last}"
        ));
    };
    match found.transport {
        LinkTransport::File { .. } => Err(format!(
            "data link {link} of source {} is a file, which cannot go down",
            found.source
        )),
        _ => Ok(fault),
    }
}

/// A cut of the streams of a filter unit.
fn stream_fault(
    chain: &ChainConfig,
    processes: bool,
    (role, at): (&str, FaultTime),
) -> Result<StreamFault, String> {
    if processes || !chain.filter_transport.is_network() {
        let needed = "it needs `transport = \"tcp\"` under `[filter]` and roles that are threads; with \
                      `--processes`, `kill` does as much";
        return Err(needed.to_owned());
    }
    let units = (0..chain.builder.filter_units).map(UnitId::filter);
    let unit = units.into_iter().find(|unit| unit.to_string() == role);
    let unit = unit.ok_or_else(|| format!("{role} is no filter unit of this run"))?;
    Ok(StreamFault { unit, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for (text, written) in [
            ("link-down:3@4s+1s", "link-down:3@4s+1s"),
            ("link-down:ru0@1 s+1ms", "link-down:ru0@1s+1ms"),
            ("link-down:0x51A@1s+1s", "link-down:0x00051a@1s+1s"),
            ("kill:bu1@0.5s", "kill:bu1@500ms"),
            ("kill:bu1@1500us", "kill:bu1@1500us"),
            ("kill:bu1@1000001ns", "kill:bu1@1000001ns"),
            ("stop:fu0@3s+2s", "stop:fu0@3s+2s"),
            ("kill:bu1@500triggers", "kill:bu1@500triggers"),
            ("stop:evm@5 triggers+1s", "stop:evm@5triggers+1s"),
            ("cut:fu1@500triggers", "cut:fu1@500triggers"),
            ("cut:fu0@2s", "cut:fu0@2s"),
            ("kill:evm@loss-of:bu1", "kill:evm@loss-of:bu1"),
            ("kill:evm@loss-of:bu1#1", "kill:evm@loss-of:bu1"),
            ("stop:ru0@loss-of:evm#3+1s", "stop:ru0@loss-of:evm#3+1s"),
            ("crash:1234", "crash:1234"),
            ("hang:7", "hang:7"),
        ] {
            let fault = parse_fault(text).expect(text);
            assert_eq!(fault.to_text(), written);
            assert_eq!(parse_fault(written), Ok(fault));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_form() {
        for text in [
            "",
            "kill",
            "kill:bu1",
            "link-down:0xg@1s+1s",
            "stop:fu0@3s",
            "stop:fu0@3s+0s",
            "kill:bu1@5",
            "burn:bu1@5s",
            "cut:fu1",
            "cut:fu1@loss-of:bu1",
            "kill:evm@loss-of:bux",
            "kill:evm@loss-of:bu1#0",
            "crash:fu0",
            "hang:",
        ] {
            let error = parse_fault(text).expect_err(text);
            assert!(error.contains("stop:fu0@3s+2s"), "{text}: {error}");
        }
    }
}
