//! What a configuration asks for that a run does not do as it seems, although it is no mistake.

use livetime_builder::ShapingPace;
use livetime_node::chain_plan::memory_bytes_least;
use livetime_node::machine_memory::{MEMORY, memory_there};
use livetime_node::process::LossPolicy;
use livetime_node::{ChainConfig, FilterConfig};
use livetime_wire::{ByteSize, DurationNs};

use super::RunConfig;
use super::run_config::filters_key;

/// So much memory takes noticeably long to make.
const MAKING_SAID: ByteSize = ByteSize(1 << 30);

/// What `check` and `run` say beside the problems; `processes` says whether roles get a process each.
pub(crate) fn run_notes(config: &RunConfig, processes: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if config.chain.builder.heartbeat > DurationNs(0) && !processes {
        notes.push(
            "`[builder] heartbeat` watches processes: without `--processes` or `[[host]]` no unit is \
             taken for dead"
                .to_owned(),
        );
    }
    if config.on_loss.filters_at_start.is_some() && !processes {
        notes.push(
            "`[filter] units_max` is above `units`: filter units join only as processes, so `run` \
             refuses this without `--processes`, `[workers] processes = true` or `[[host]]`"
                .to_owned(),
        );
    }
    if !processes {
        notes.extend(policy_note(config));
    }
    if config.are_threads && !config.hosts.hosts.is_empty() {
        notes.push(
            "`[workers] processes = false` changes nothing beside `[[host]]`: each role of a host is a \
             process"
                .to_owned(),
        );
    }
    if config.directory.to_string_lossy().starts_with('~') {
        notes.push(format!(
            "`run.directory` begins with `~`, which is not expanded here: runs go to a folder of that \
             name, {} below the working directory",
            config.directory.display()
        ));
    }
    notes.extend(front_ends_note(&config.chain));
    notes.extend(unset_bits_notes(&config.chain));
    notes.extend(size_note(&config.chain));
    notes.extend(socket_note(&config.chain));
    notes.extend(shift_note(&config.chain));
    notes
}

/// Where front-ends of users send, and that they are waited for, though not beyond the run's time.
fn front_ends_note(chain: &ChainConfig) -> Option<String> {
    let front_ends = chain.front_ends.as_ref()?;
    let streams = front_ends.listen.map(|at| format!("streams at {at}"));
    let datagrams = front_ends.datagrams.map(|at| format!("datagrams at {at}"));
    let places: Vec<String> = streams.into_iter().chain(datagrams).collect();
    let end = match chain.source.triggers.duration {
        Some(time) => {
            format!("; the run ends {time} after its start, whether they have come or not")
        }
        None => String::new(),
    };
    Some(format!(
        "triggers are those of front-ends: {}; the first is taken when each of {} sources has sent its \
         part{end}",
        places.join(", "),
        chain.detector_sources().len()
    ))
}

/// That the pages and tables of a run on this machine are more than the memory there is for it: `run`
/// refuses it, since there all rings count as well.
pub(crate) fn memory_note(config: &RunConfig) -> Option<String> {
    // Each host looks at its own share when the run starts.
    let is_here = config.hosts.hosts.is_empty();
    let needed = ByteSize(memory_bytes_least(&config.chain));
    let there = memory_there().filter(|there| is_here && needed > there.bytes)?;
    Some(format!(
        "pages, rings and tables take {needed} or more, and {there}: `run` refuses that here (`livetime explain {}`)",
        MEMORY.code
    ))
}

/// That roles that are threads here cannot be processes.
pub(crate) fn processes_note(config: &RunConfig) -> Option<String> {
    let problem = config.chain.check_processes(filters_key(&config.on_loss))?;
    Some(format!(
        "`run --processes` refuses this: `{}` is {}, allowed are {} (`livetime explain {}`)",
        problem.path, problem.found, problem.allowed, problem.code.code
    ))
}

/// That a run makes so much memory at its start that this takes a while.
pub(crate) fn making_note(bytes: ByteSize) -> Option<String> {
    (bytes >= MAKING_SAID).then(|| {
        format!(
            "note: {bytes} of pages, rings and tables are made and touched first, which takes \
             a while; a signal is heard after that"
        )
    })
}

/// What is said about the death of processes, where there are none.
fn policy_note(config: &RunConfig) -> Option<String> {
    let (policy, default) = (&config.on_loss, LossPolicy::default());
    // An interpreter is a process of its own, whatever the filter unit is.
    let is_python = matches!(config.chain.filter, FilterConfig::Python(_));
    let keys = [
        ("[builder] on_loss", policy.builder != default.builder),
        (
            "[builder] on_readout_loss",
            policy.readout != default.readout,
        ),
        ("[filter] on_loss", policy.filter != default.filter),
        ("[store] on_loss", policy.writer != default.writer),
        (
            "[filter] retries",
            !is_python && policy.retries != default.retries,
        ),
        (
            "[filter] time_limit",
            !is_python && policy.time_limit != default.time_limit,
        ),
    ];
    let changed = keys.into_iter().filter(|(_, is_changed)| *is_changed);
    let changed: Vec<String> = changed.map(|(key, _)| format!("`{key}`")).collect();
    (!changed.is_empty()).then(|| {
        format!(
            "without `--processes` or `[[host]]` nothing comes of {}: threads neither die alone nor are \
             they killed",
            changed.join(", ")
        )
    })
}

/// That fragments may be longer than what the kernel has room for in a socket of UDP, where each
/// datagram takes more than its bytes.
fn socket_note(chain: &ChainConfig) -> Option<String> {
    let longest = chain.source.fragment.bytes_max.0;
    let links = chain.data_links.iter();
    let sizes = links.filter_map(|link| link.transport.socket_bytes(longest));
    let short = sizes.filter(|(needed, room)| needed > room);
    let (needed, room) = short.min_by_key(|(needed, room)| (*room, u64::MAX - needed))?;
    Some(format!(
        "`socket_buffer` of a link is {} B, for which the kernel takes {room} B, and it needs {needed} B \
         for the datagrams of a fragment of `bytes_max`, {longest} B: of so long ones the end is lost \
         (`datagram_lost`). Raise `socket_buffer`, or `datagram`",
        room / 2
    ))
}

/// That a barrel shifter with a clock carries the events of all credits more slowly than they are waited
/// for: a builder unit has one step of each turn, in which a readout unit sends it a block.
fn shift_note(chain: &ChainConfig) -> Option<String> {
    let (builder, shaping) = (&chain.builder, chain.builder.shaping.as_ref()?);
    let ShapingPace::Clock { step } = shaping.pace else {
        return None;
    };
    let sources = builder.readout_units.iter().map(Vec::len).max()?;
    let units = builder
        .readout_units
        .len()
        .max(builder.builder_units.into());
    let of_event = u128::from(chain.source.fragment.bytes_mean.0) * sources as u128;
    let bytes = of_event * u128::from(builder.credits);
    let turns = bytes.div_ceil(shaping.block_bytes.max(1).into());
    let needed = turns * units as u128 * u128::from(step.0);
    (needed > builder.timeout.0.into()).then(|| {
        format!(
            "with `block` and `step` of the barrel shifter a readout unit takes {} to send what a builder \
             unit has credits for, and after `[builder] timeout`, {}, events are closed without what \
             misses: raise `block`, or lower `step` or `credits`",
            DurationNs(u64::try_from(needed).unwrap_or(u64::MAX)),
            builder.timeout
        )
    })
}

/// That a condition asks for bits of Level 2 that no path of the menu sets. It is no mistake where
/// another menu decided, on events that are replayed through this filter.
fn unset_bits_notes(chain: &ChainConfig) -> Vec<String> {
    let set: Vec<u8> = chain.menu.paths().iter().map(|path| path.bit).collect();
    let of_first_step = ("`[filter.first_step]`".to_owned(), &chain.first_step.l2);
    let paths = match &chain.filter {
        FilterConfig::Menu(menu) => &menu.paths[..],
        _ => &[],
    };
    let of_paths = paths.iter().map(|path| {
        let key = format!("the `[[filter.path]]` `{}`", path.name);
        (key, &path.l2)
    });
    let conditions = std::iter::once(of_first_step).chain(of_paths);
    let notes = conditions.filter_map(|(key, asked)| {
        let unset = asked.iter().filter(|bit| !set.contains(bit));
        let unset: Vec<String> = unset.map(u8::to_string).collect();
        let what = match unset.len() {
            0 => return None,
            count if count == asked.len() => "no event meets it",
            _ => "nothing comes of them",
        };
        Some(format!(
            "`l2` of {key} has {}, which no `[[trigger.path]]` sets: {what}",
            unset.join(", ")
        ))
    });
    notes.collect()
}

/// That events may be larger than what byte credits set aside for one.
fn size_note(chain: &ChainConfig) -> Option<String> {
    let builder = &chain.builder;
    let largest = chain.source.fragment.bytes_max.0 * chain.data_links.len() as u64;
    let may_exceed = builder.credit_bytes > 0 && builder.event_bytes < largest;
    (may_exceed && !chain.is_replayed()).then(|| {
        format!(
            "events may have up to {} (`bytes_max` of each source), `[builder] event_bytes` sets {} aside: \
             by larger events a builder unit may hold more than `credit_bytes`",
            ByteSize(largest),
            ByteSize(builder.event_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::run_config::{Overrides, read};
    use super::*;

    const LINKS: &str = "format = 1\n[[source]]\n[[link]]\nto = \"trg0\"\nsource_id = 1\n\
                         [[link]]\nto = \"ru0\"\nsource_id = 2\ncount = 4\n";

    fn notes(tables: &str, processes: bool) -> Vec<String> {
        let text = format!("{LINKS}{tables}");
        let config = read(&text, &Overrides::default(), &[0, 1]).config;
        run_notes(&config.expect("it has no problem"), processes)
    }

    #[test]
    fn keys_that_nothing_comes_of_without_processes_are_noted() {
        let tables = "[builder]\non_loss = \"stop\"\non_readout_loss = \"restart\"\n\
                      [filter]\nretries = 2\ntime_limit = \"1 s\"\n";
        let found = notes(tables, false);
        assert_eq!(found.len(), 1, "{found:?}");
        let keys = "`[builder] on_loss`, `[builder] on_readout_loss`, `[filter] retries`, `[filter] time_limit`";
        assert!(found[0].contains(keys), "{found:?}");
        assert_eq!(notes(tables, true), Vec::<String>::new());
        let python = "[filter]\npython = \"a.py:f\"\nretries = 2\n";
        assert_eq!(notes(python, false), Vec::<String>::new());
        let home = notes("[run]\ndirectory = \"~/runs\"\n", false);
        assert!(home[0].contains("not expanded"), "{home:?}");
        assert_eq!(
            notes("[run]\ndirectory = \"./~/runs\"\n", false),
            Vec::<String>::new()
        );
    }

    #[test]
    fn sizes_with_which_every_run_loses_are_noted() {
        let udp = |buffer: &str| {
            let link = format!(
                "[[link]]\nto = \"ru1\"\nsource_id = 9\nkind = \"udp\"\nsocket_buffer = \"{buffer}\"\n"
            );
            notes(&link, false)
        };
        let found = udp("8 KiB");
        assert!(
            found[0].contains("8192 B") && found[0].contains("16384 B"),
            "{found:?}"
        );
        assert_eq!(udp("16 KiB"), Vec::<String>::new());
        // Each of 4096 datagrams of a word takes 1.5 KiB of it.
        let small = udp("2 MiB\"\ndatagram = \"4 B");
        assert!(small[0].contains("6291456 B"), "{small:?}");
        assert_eq!(udp("4 MiB\"\ndatagram = \"4 B"), Vec::<String>::new());
        let clock = |block: &str, step: &str| {
            let keys = format!(
                "[builder]\ntransport = \"tcp\"\nshaping = \"barrel-shifter\"\npace = \"clock\"\n\
                 block = \"{block}\"\nstep = \"{step}\"\n"
            );
            notes(&keys, false)
        };
        // 4 sources x 2 KiB x 16 credits are 512 blocks, one in two steps.
        let found = clock("256 B", "10 ms");
        assert!(found[0].contains("takes 10.2 s"), "{found:?}");
        assert_eq!(clock("64 KiB", "10 ms"), Vec::<String>::new());
    }

    #[test]
    fn front_ends_are_told_where_they_send_and_how_long_the_run_lasts() {
        let note = |run: &str| {
            let table =
                "[[source]]\nkind = \"external\"\nlisten = \"127.0.0.1:9870\"\nqueue = 65536\n";
            let text = LINKS.replace("[[source]]\n", table) + run;
            let read = read(&text, &Overrides::default(), &[0, 1]);
            let config = read.config.expect("it has no problem");
            run_notes(&config, false).concat()
        };
        let by_default = note("");
        let places =
            "front-ends: streams at 127.0.0.1:9870; the first is taken when each of 4 sources";
        assert!(by_default.contains(places), "{by_default}");
        let end = "; the run ends 20.0 s after its start, whether they have come or not";
        assert!(by_default.ends_with(end), "{by_default}");
        let by_triggers = note("[run]\ntriggers = 5\n");
        assert!(by_triggers.ends_with("has sent its part"), "{by_triggers}");
    }

    #[test]
    fn pages_beyond_the_memory_of_this_machine_are_noted() {
        let with = |tables: &str, pages: u32| {
            let text = LINKS.replace(
                "count = 4\n",
                &format!("count = 4\npage = \"4194240 B\"\npages = {pages}\n"),
            );
            let read = read(&format!("{text}{tables}"), &Overrides::default(), &[0, 1]);
            memory_note(&read.config.expect("it has no problem"))
        };
        let note = with("", 1 << 24).expect("no machine has 256 TiB");
        assert!(note.contains("livetime explain R0106"), "{note}");
        let roles = "[[host]]\nname = \"a\"\naddress = \"127.0.0.1\"\nroles = [\"src0\", \"trg0\", \"ru0\", \
                     \"evm\", \"bu0\", \"bu1\", \"fu0\", \"wr0\"]\n";
        assert_eq!(
            with(roles, 1 << 24),
            None,
            "the host looks at its own memory"
        );
    }

    #[test]
    fn bits_that_no_path_of_level_two_sets_are_noted() {
        let path = |name: &str, bit: u8| {
            format!("[[trigger.path]]\nname = \"{name}\"\nbit = {bit}\nl1 = [0]\ncut = \"auto\"\n")
        };
        let menu = path("ALL", 127) + &path("MU", 0);
        let with = |first: &str, third: &str| {
            let unit =
                "[[link]]\nto = \"ru1\"\nsource_id = 20\n[builder]\nfirst_step = [\"ru0\"]\n";
            let filter = "[filter]\nname = \"menu\"\nstreams = [\"all\"]\n";
            let cut = "[[filter.path]]\nname = \"A\"\ncut = \"all\"\nstreams = [\"all\"]\n";
            let first = format!("[filter.first_step]\nl2 = {first}\n");
            let text = format!("{menu}{unit}{filter}{cut}l2 = {third}\n{first}");
            notes(&text, false)
        };
        assert_eq!(with("[0, 127]", "[]"), Vec::<String>::new());
        let found = with("[5]", "[0, 5, 6]");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("`[filter.first_step]` has 5, which no"),
            "{found:?}"
        );
        assert!(found[0].ends_with("no event meets it"), "{found:?}");
        assert!(found[1].contains("`A` has 5, 6, which no"), "{found:?}");
        assert!(found[1].ends_with("nothing comes of them"), "{found:?}");
    }

    #[test]
    fn memory_that_takes_seconds_to_make_is_said() {
        assert_eq!(making_note(ByteSize((1 << 30) - 1)), None);
        let note = making_note(ByteSize(9 << 30)).expect("it is much");
        assert!(note.starts_with("note: 9 GiB of pages"), "{note}");
    }

    #[test]
    fn what_needs_processes_or_larger_credits_is_noted() {
        let watched = "[builder]\nheartbeat = \"100 ms\"\n[filter]\nunits = 1\nunits_max = 3\n";
        let found = notes(watched, false);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("heartbeat") && found[1].contains("units_max"));
        assert_eq!(notes(watched, true), Vec::<String>::new());
        let credits = |event: &str| {
            let keys = format!("[builder]\ncredit_bytes = \"1 MiB\"\nevent_bytes = \"{event}\"\n");
            notes(&keys, false)
        };
        let found = credits("1 KiB");
        assert!(found[0].contains("64 KiB"), "{found:?}");
        assert_eq!(credits("64 KiB"), Vec::<String>::new());
    }
}
