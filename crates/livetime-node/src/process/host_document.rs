//! What the coordinator of a run over several hosts and its hosts say to each other.
//!
//! Orders go to a host, reports come from it, each one JSON document. What a role process and its
//! parent say ([`super::control_message`]) travels inside them unchanged, but that descriptors stay
//! on their host: there, [`super::host_agent`] makes what the names in a document stand for.

use serde_json::{Value, json};

use super::run_page::Activity;
use crate::counter_block::RoleCounts;

/// Version of these documents.
pub const HOST_PROTOCOL: u64 = 9;

/// A run file that the host of its writer goes on with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BegunFile {
    /// Its path.
    pub path: String,
    /// What it holds before the first event.
    pub begun: Vec<u8>,
}

/// Everything that a host is told of a run before its roles are started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preparation {
    /// Text of the configuration.
    pub config: String,
    /// Options over it.
    pub arguments: Vec<String>,
    /// What the file of its filter in Python holds, if it has one.
    pub filter: Option<Vec<u8>>,
    /// Where relative paths of the configuration begin.
    pub folder: String,
    /// Blocks of the run page.
    pub blocks: u64,
    /// Role ids with the host of each.
    pub placement: Vec<(String, String)>,
    /// Hosts with the address at which each accepts streams.
    pub streams_at: Vec<(String, String)>,
    /// What names the machine of the coordinator as long as it is up.
    pub machine: String,
    /// The run's clock, for hosts on that machine.
    pub clock: [u64; 5],
    /// When the run's time began \[ns since 1970\], for others.
    pub started_unix_ns: u64,
    /// The run files, by the index of their writers.
    pub files: Vec<BegunFile>,
}

/// What is done to a role's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleSignal {
    /// It ends at once.
    Kill,
    /// It stands still.
    Stop,
    /// It goes on.
    Continue,
}

/// What the coordinator tells a host. A role process is named by the block of its counters, which
/// no other ever gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOrder {
    /// The run that is to come.
    Prepare(Box<Preparation>),
    /// A role is to be started.
    Spawn {
        /// The block of its counters.
        block: u64,
        /// Role id.
        role: String,
    },
    /// A document for a role.
    Say {
        /// The role's block.
        block: u64,
        /// The document.
        text: String,
    },
    /// Nobody listens to a role any more.
    HangUp {
        /// The role's block.
        block: u64,
    },
    /// Something is done to a role's process.
    Signal {
        /// The role's block.
        block: u64,
        /// What.
        signal: RoleSignal,
    },
    /// Phase and settlement of the run.
    Phase {
        /// The phase.
        phase: u64,
        /// The step of the settlement.
        step: u64,
    },
    /// The run is over.
    Quit,
    /// It does not take part in the run, for this reason.
    Refuse(String),
}

/// The counters of a role at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockState {
    /// What it has published.
    pub counts: RoleCounts,
    /// Its duty cycles.
    pub activity: Activity,
    /// The event that it works on, 0 for none.
    pub event: u64,
}

/// What a host reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReport {
    /// It is prepared, or why it cannot be.
    Prepared(Option<String>),
    /// A role's process has started, with this number, or why it could not.
    Started {
        /// The role's block.
        block: u64,
        /// Number of the process.
        process: Result<u32, String>,
    },
    /// A document of a role, with its counters at that time.
    Said {
        /// The role's block.
        block: u64,
        /// The document.
        text: String,
        /// Its counters.
        state: Box<BlockState>,
    },
    /// A role's process has ended.
    Gone {
        /// The role's block.
        block: u64,
        /// How it ended.
        exit: String,
        /// Page holds of it that were dropped.
        holds_dropped: u32,
        /// Its last counters.
        state: Box<BlockState>,
    },
    /// The host ends by itself, for this reason: no role is started there any more, and the ends of
    /// its roles follow.
    Leaving(String),
    /// The counters of the roles that live, and what the host was told last of the run.
    Counters {
        /// The phase.
        phase: u64,
        /// The step of the settlement.
        step: u64,
        /// Blocks and what stands in them.
        blocks: Vec<(u64, BlockState)>,
    },
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn pairs(value: &Value) -> Option<Vec<(String, String)>> {
    let pairs = value.as_array()?.iter();
    pairs
        .map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
        .collect()
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

impl Preparation {
    fn to_json(&self) -> Value {
        let files = self.files.iter();
        let files = files.map(|BegunFile { path, begun }| json!([path, begun]));
        json!({
            "config": self.config,
            "arguments": self.arguments,
            "filter": self.filter,
            "folder": self.folder,
            "blocks": self.blocks,
            "placement": self.placement,
            "streams_at": self.streams_at,
            "machine": self.machine,
            "clock": self.clock,
            "started_unix_ns": self.started_unix_ns,
            "files": files.collect::<Value>(),
        })
    }

    fn from_json(body: &Value) -> Option<Self> {
        let bytes = |value: &Value| {
            let bytes = numbers(value)?.into_iter();
            let bytes = bytes.map(|byte| u8::try_from(byte).ok());
            bytes.collect::<Option<Vec<u8>>>()
        };
        let file = |entry: &Value| {
            let begun = bytes(&entry[1])?;
            let path = text(&entry[0])?;
            Some(BegunFile { path, begun })
        };
        let filter = match &body["filter"] {
            Value::Null => None,
            filter => Some(bytes(filter)?),
        };
        let files = body["files"].as_array()?.iter();
        let arguments = body["arguments"].as_array()?.iter();
        Some(Self {
            config: text(&body["config"])?,
            arguments: arguments.map(text).collect::<Option<_>>()?,
            filter,
            folder: text(&body["folder"])?,
            blocks: body["blocks"].as_u64()?,
            placement: pairs(&body["placement"])?,
            streams_at: pairs(&body["streams_at"])?,
            machine: text(&body["machine"])?,
            clock: numbers(&body["clock"])?.try_into().ok()?,
            started_unix_ns: body["started_unix_ns"].as_u64()?,
            files: files.map(file).collect::<Option<_>>()?,
        })
    }
}

impl RoleSignal {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Continue => "continue",
        }
    }

    fn of(name: &str) -> Option<Self> {
        let all = [Self::Kill, Self::Stop, Self::Continue];
        all.into_iter().find(|signal| signal.name() == name)
    }
}

impl HostOrder {
    /// The document.
    pub fn to_bytes(&self) -> Vec<u8> {
        let document = match self {
            Self::Prepare(preparation) => json!(["prepare", preparation.to_json()]),
            Self::Spawn { block, role } => json!(["spawn", block, role]),
            Self::Say { block, text } => json!(["say", block, text]),
            Self::HangUp { block } => json!(["hang_up", block]),
            Self::Signal { block, signal } => json!(["signal", block, signal.name()]),
            Self::Phase { phase, step } => json!(["phase", phase, step]),
            Self::Quit => json!(["quit"]),
            Self::Refuse(reason) => json!(["refuse", reason]),
        };
        document.to_string().into_bytes()
    }

    /// The order of a document; `None` for one that cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(bytes).ok()?;
        let first = || body[1].as_u64();
        Some(match body[0].as_str()? {
            "prepare" => Self::Prepare(Box::new(Preparation::from_json(&body[1])?)),
            "spawn" => Self::Spawn {
                block: first()?,
                role: text(&body[2])?,
            },
            "say" => Self::Say {
                block: first()?,
                text: text(&body[2])?,
            },
            "hang_up" => Self::HangUp { block: first()? },
            "signal" => Self::Signal {
                block: first()?,
                signal: RoleSignal::of(body[2].as_str()?)?,
            },
            "phase" => Self::Phase {
                phase: first()?,
                step: body[2].as_u64()?,
            },
            "quit" => Self::Quit,
            "refuse" => Self::Refuse(text(&body[1])?),
            _ => return None,
        })
    }
}

impl BlockState {
    fn to_json(self) -> Value {
        let Activity { cycles, work } = self.activity;
        let mut words = vec![self.event, cycles, work];
        words.extend(self.counts.to_words());
        json!(words)
    }

    fn from_json(value: &Value) -> Option<Self> {
        let words = numbers(value)?;
        let (&[event, cycles, work], counts) = words.split_first_chunk()?;
        Some(Self {
            counts: RoleCounts::from_words(counts.try_into().ok()?),
            activity: Activity { cycles, work },
            event,
        })
    }
}

impl HostReport {
    /// Whether the next of its kind says all of it again.
    pub fn is_state(&self) -> bool {
        matches!(self, Self::Counters { .. })
    }

    /// The document.
    pub fn to_bytes(&self) -> Vec<u8> {
        let document = match self {
            Self::Prepared(failure) => json!(["prepared", failure]),
            Self::Started { block, process } => match process {
                Ok(process) => json!(["started", block, process]),
                Err(reason) => json!(["started", block, reason]),
            },
            Self::Said { block, text, state } => json!(["said", block, text, state.to_json()]),
            Self::Gone {
                block,
                exit,
                holds_dropped,
                state,
            } => json!(["gone", block, exit, holds_dropped, state.to_json()]),
            Self::Leaving(reason) => json!(["leaving", reason]),
            Self::Counters {
                phase,
                step,
                blocks,
            } => {
                let entry = |(block, state): &(u64, BlockState)| json!([block, state.to_json()]);
                let blocks = blocks.iter().map(entry).collect::<Value>();
                json!(["counters", phase, step, blocks])
            }
        };
        document.to_string().into_bytes()
    }

    /// The report of a document; `None` for one that cannot be read.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(bytes).ok()?;
        let first = || body[1].as_u64();
        Some(match body[0].as_str()? {
            "prepared" => Self::Prepared(text(&body[1])),
            "started" => Self::Started {
                block: first()?,
                process: match text(&body[2]) {
                    Some(reason) => Err(reason),
                    None => Ok(u32::try_from(body[2].as_u64()?).ok()?),
                },
            },
            "said" => Self::Said {
                block: first()?,
                text: text(&body[2])?,
                state: Box::new(BlockState::from_json(&body[3])?),
            },
            "gone" => Self::Gone {
                block: first()?,
                exit: text(&body[2])?,
                holds_dropped: u32::try_from(body[3].as_u64()?).ok()?,
                state: Box::new(BlockState::from_json(&body[4])?),
            },
            "leaving" => Self::Leaving(text(&body[1])?),
            "counters" => {
                let entry =
                    |entry: &Value| Some((entry[0].as_u64()?, BlockState::from_json(&entry[1])?));
                Self::Counters {
                    phase: first()?,
                    step: body[2].as_u64()?,
                    blocks: (body[3].as_array()?.iter())
                        .map(entry)
                        .collect::<Option<_>>()?,
                }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_travel_whole() {
        let pair = |a: &str, b: &str| vec![(a.to_owned(), b.to_owned())];
        let begun = |name| BegunFile {
            path: format!("/runs/000001/{name}"),
            begun: vec![0, 255],
        };
        let preparation = Preparation {
            config: "format = 1\n".to_owned(),
            arguments: vec!["--lossless".to_owned()],
            filter: Some(vec![b'#', 0xFC]),
            folder: "/runs".to_owned(),
            blocks: 70,
            placement: pair("ru0", "a"),
            streams_at: pair("a", "127.0.0.1:4000"),
            machine: "m".to_owned(),
            clock: [1, 2, 3, u64::MAX, 5],
            started_unix_ns: u64::MAX,
            files: ["events.mcap", "events-1.mcap"].map(begun).to_vec(),
        };
        let block = 3;
        let mut orders = vec![
            HostOrder::Prepare(Box::new(preparation)),
            HostOrder::Spawn {
                block,
                role: "ru0".to_owned(),
            },
            HostOrder::Say {
                block,
                text: "[\"start\",null]".to_owned(),
            },
            HostOrder::HangUp { block },
            HostOrder::Phase { phase: 3, step: 2 },
            HostOrder::Quit,
            HostOrder::Refuse("another is there".to_owned()),
        ];
        for signal in [RoleSignal::Kill, RoleSignal::Stop, RoleSignal::Continue] {
            orders.push(HostOrder::Signal { block, signal });
        }
        for order in orders {
            let found = HostOrder::from_bytes(&order.to_bytes());
            assert_eq!(found, Some(order));
        }
    }

    #[test]
    fn reports_travel_whole() {
        let mut state = BlockState {
            counts: RoleCounts::default(),
            activity: Activity { cycles: 7, work: 5 },
            event: u64::MAX,
        };
        state.counts.chain.triggers = u64::MAX;
        state.counts.gauges.disk_full = 1;
        let block = 3;
        let reports = [
            HostReport::Prepared(None),
            HostReport::Prepared(Some("no".to_owned())),
            HostReport::Leaving("ended by SIGTERM".to_owned()),
            HostReport::Started {
                block,
                process: Ok(77),
            },
            HostReport::Started {
                block,
                process: Err("no".to_owned()),
            },
            HostReport::Said {
                block,
                text: "[]".to_owned(),
                state: Box::new(state),
            },
            HostReport::Gone {
                block,
                exit: "signal: 9".to_owned(),
                holds_dropped: 2,
                state: Box::new(state),
            },
            HostReport::Counters {
                phase: 1,
                step: 0,
                blocks: vec![(block, state)],
            },
        ];
        for report in reports {
            let found = HostReport::from_bytes(&report.to_bytes());
            assert_eq!(found, Some(report));
        }
    }

    #[test]
    fn nonsense_is_no_document() {
        for bytes in [
            &b"x"[..],
            b"[]",
            b"[\"spawn\",-1]",
            b"[\"signal\",1,\"hug\"]",
            b"[\"said\",1,\"\",[1,2,3]]",
        ] {
            assert_eq!(HostOrder::from_bytes(bytes), None);
            assert_eq!(HostReport::from_bytes(bytes), None);
        }
    }
}
