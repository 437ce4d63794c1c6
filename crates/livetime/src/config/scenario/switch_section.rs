//! The table `[switch]` of a scenario: what elements do with packets.

use livetime_fabric::network::{
    Arbiter, BufferPlace, Buffering, FlowControl, Forwarding, Load, Matching, Queueing, RoutePolicy,
};
use livetime_fabric::scenario::{Switching, TopologyChoice};
use livetime_wire::ByteSize;

use super::COUNT_MAX;
use crate::config::document::Section;

/// Keys of `[switch]` for elements with buffers.
const BUFFER_KEYS: [&str; 12] = [
    "queues",
    "matching",
    "iterations",
    "speedup",
    "output_buffer",
    "crosspoint_buffer",
    "buffer_place",
    "buffer",
    "lanes",
    "flow_control",
    "stop",
    "go",
];
/// Keys of `[switch]` for some queues alone.
const OF_QUEUES: [(&str, &[&str]); 5] = [
    ("matching", &["virtual-output", "combined"]),
    ("iterations", &["virtual-output", "combined"]),
    ("speedup", &["combined"]),
    ("output_buffer", &["combined"]),
    ("crosspoint_buffer", &["crosspoint"]),
];

/// Why no choice of routes has an effect.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdleRoutes {
    /// The order of shifts of this table has routes of its own.
    Scheduled(&'static str),
    /// A network of this kind has one route for each pair.
    Single(&'static str),
}

impl IdleRoutes {
    pub(super) const fn of_network(topology: &TopologyChoice) -> Option<Self> {
        match topology {
            TopologyChoice::Crossbar { .. } => Some(Self::Single("crossbar")),
            TopologyChoice::Delta { .. } => Some(Self::Single("delta")),
            _ => None,
        }
    }

    /// Refuses the key in `[switch]`.
    fn refuse(self, section: &mut Section<'_, '_>) {
        let (reason, help) = match self {
            Self::Scheduled(table) => (
                format!(
                    "`routes` with `order = \"plain\"` of `[{table}]`: a conflict-free order has \
                     its own"
                ),
                format!("remove `routes`, or set `order = \"plain\"` in `[{table}]`"),
            ),
            Self::Single(kind) => (
                format!("`routes` where there are several: `kind = \"{kind}\"` has one for a pair"),
                "remove `routes`".to_owned(),
            ),
        };
        section.refuse_idle(&["routes"], &reason, &help);
    }
}

/// With why `routes` has no effect, if it has none.
pub(super) fn read_switch(
    root: &mut Section<'_, '_>,
    load: &mut Load,
    idle_routes: Option<IdleRoutes>,
) -> Switching {
    let Some(mut section) = root.section("switch") else {
        return Switching::Wormhole;
    };
    let arbiters = Arbiter::ALL.map(|arbiter| (arbiter.name(), arbiter));
    load.arbiter = section.choice("arbiter", &arbiters).unwrap_or_default();
    let routes = [
        ("random", RoutePolicy::Random),
        ("by-source-port", RoutePolicy::BySourcePort),
        ("by-destination", RoutePolicy::ByDestination),
        ("random-per-pair", RoutePolicy::RandomPerPair),
        ("in-turn", RoutePolicy::InTurn),
    ];
    load.routes = section.choice("routes", &routes).unwrap_or_default();
    if let Some(idle) = idle_routes {
        idle.refuse(&mut section);
    }
    let modes = [
        ("wormhole", None),
        ("cut-through", Some(Forwarding::CutThrough)),
        ("store-and-forward", Some(Forwarding::StoreAndForward)),
    ];
    let mode = section.choice("mode", &modes).unwrap_or(None);
    if mode.is_none() {
        let reason = "these keys with `mode = \"cut-through\"` or \"store-and-forward\"";
        let help = "set `mode`: without it packets are wormholes, which no buffer holds";
        section.refuse_idle(&BUFFER_KEYS, reason, help);
    }
    let switching = mode.map_or(Switching::Wormhole, |forwarding| {
        Switching::Buffered(read_buffering(&mut section, forwarding))
    });
    if let Switching::Buffered(buffering) = &switching
        && buffering.queueing.matching().is_some()
    {
        let reason = "`arbiter` where no scheduler chooses, as that of `matching` does here";
        let help = "remove `arbiter`, or set `matching = \"arbiter\"`";
        section.refuse_idle(&["arbiter"], reason, help);
    }
    section.finish();
    switching
}

fn read_buffering(section: &mut Section<'_, '_>, forwarding: Forwarding) -> Buffering {
    let places = [
        ("input", BufferPlace::Input),
        ("output", BufferPlace::Output),
        ("shared", BufferPlace::Shared),
    ];
    let place = section.choice("buffer_place", &places).unwrap_or_default();
    let mut bytes = ByteSize(64 << 10);
    section.quantity("buffer", &mut bytes);
    let queueing = read_queueing(section, bytes.0);
    let lanes = section.integer("lanes", 0..=COUNT_MAX).unwrap_or(1) as u32;
    let words = ["credits", "none", "stop-go"].map(|word| (word, word));
    let flow = section.choice("flow_control", &words).unwrap_or("credits");
    let of_stop_go: [(&str, &[&str]); 2] = [("stop", &["stop-go"]), ("go", &["stop-go"])];
    section.refuse_others("flow_control", flow, &of_stop_go);
    let flow = match flow {
        "credits" => FlowControl::Credits,
        "none" => FlowControl::None,
        _ => {
            let (mut stop, mut go) = (ByteSize(bytes.0 / 2), ByteSize(bytes.0 / 4));
            section.quantity("stop", &mut stop);
            section.quantity("go", &mut go);
            FlowControl::StopGo {
                stop: stop.0,
                go: go.0,
            }
        }
    };
    Buffering {
        forwarding,
        queueing,
        place,
        bytes: bytes.0,
        lanes,
        flow,
    }
}

/// How packets queue, in elements with buffers of so many bytes.
fn read_queueing(section: &mut Section<'_, '_>, bytes: u64) -> Queueing {
    let queues = [
        "input-fifo",
        "virtual-output",
        "output",
        "combined",
        "crosspoint",
    ];
    let queues = section.choice("queues", &queues.map(|word| (word, word)));
    let queues = queues.unwrap_or("input-fifo");
    section.refuse_others("queues", queues, &OF_QUEUES);
    match queues {
        "virtual-output" => match read_matching(section) {
            Some(matching) => Queueing::Matched(matching),
            None => Queueing::VirtualOutput,
        },
        "output" => Queueing::Output,
        "combined" => {
            let speedup = section.number("speedup", 1.0..=16.0).unwrap_or(2.0);
            let mut output_bytes = ByteSize(bytes);
            section.quantity("output_buffer", &mut output_bytes);
            Queueing::Combined {
                speedup_thousandths: (speedup * 1e3).round() as u32,
                output_bytes: output_bytes.0,
                matching: read_matching(section),
            }
        }
        "crosspoint" => {
            let mut bytes = ByteSize(4096);
            section.quantity("crosspoint_buffer", &mut bytes);
            Queueing::Crosspoint { bytes: bytes.0 }
        }
        _ => Queueing::InputFifo,
    }
}

/// The scheduler of the elements; `None` for arbiters.
fn read_matching(section: &mut Section<'_, '_>) -> Option<Matching> {
    let words = ["arbiter", "pim", "islip", "rrm", "maximum-weight"];
    let word = section.choice("matching", &words.map(|word| (word, word)));
    let word = word.unwrap_or("arbiter");
    let of_rounds: [(&str, &[&str]); 1] = [("iterations", &["pim", "islip", "rrm"])];
    section.refuse_others("matching", word, &of_rounds);
    let mut iterations = || section.integer("iterations", 1..=16).unwrap_or(1) as u32;
    match word {
        "pim" => Some(Matching::Parallel {
            iterations: iterations(),
        }),
        "islip" => Some(Matching::Slip {
            iterations: iterations(),
        }),
        "rrm" => Some(Matching::RoundRobin {
            iterations: iterations(),
            moves_in_all: true,
        }),
        "maximum-weight" => Some(Matching::MaximumWeight),
        _ => None,
    }
}
