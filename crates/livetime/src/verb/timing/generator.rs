//! `livetime timing fg`: the state of the function generators, aborting, and sets as text.
//!
//! Sets are lines of seven integers, `a shift_a b shift_b c step freq`, as users of such tools
//! know them; a blank line ends a channel. They are made of a curve in [`super::design`], and given
//! to the generators in [`super::feed`].

use std::fmt::Display;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;
use livetime_shm::plain_file::{self, TEXT_BYTES_MAX};
use livetime_wire::timing_coefficient::CoefficientSet;

use super::design::DesignArguments;
use super::feed::FeedArguments;
use super::{Daemon, Failure};
use crate::console::print_line;

pub(super) const MASTER: &str = "/org/livetime/Timing1/tr0/mfg";
pub(super) const INTERFACE: &str = "MasterFunctionGenerator";
/// Largest shift that has a place in a set; what is sensible, the generator says.
const SHIFT_MAX: u8 = 63;

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    act: GeneratorAct,
}

#[derive(Debug, Subcommand)]
enum GeneratorAct {
    /// Print state, fill level and executed sets of each generator
    Status,
    /// Make coefficient sets of a curve, with a bound of the error; needs no daemon
    Design(DesignArguments),
    /// Feed coefficient sets, arm, and wait for the end of the waveforms
    Feed(FeedArguments),
    /// Abort what is armed or running
    Abort,
    /// Throw the queues away
    Flush,
}

/// Does it.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    match &options.act {
        GeneratorAct::Design(arguments) => super::design::run(arguments),
        GeneratorAct::Status => {
            let client = options.daemon.connect()?;
            let states: Vec<String> = client.call(MASTER, INTERFACE, "ReadStates", &())?;
            let fill: Vec<u64> = client.call(MASTER, INTERFACE, "ReadFillLevels", &())?;
            let executed: Vec<u64> =
                client.call(MASTER, INTERFACE, "ReadExecutedParameterCounts", &())?;
            for (index, state) in states.iter().enumerate() {
                print_line(format_args!(
                    "fg-{index} {state}, {} ns queued, {} sets executed",
                    fill.get(index).unwrap_or(&0),
                    executed.get(index).unwrap_or(&0)
                ))?;
            }
            Ok(())
        }
        GeneratorAct::Feed(arguments) => super::feed::run(&options.daemon, arguments),
        GeneratorAct::Abort => {
            let client = options.daemon.connect()?;
            Ok(client.call(MASTER, INTERFACE, "Abort", &())?)
        }
        GeneratorAct::Flush => {
            let client = options.daemon.connect()?;
            Ok(client.call(MASTER, INTERFACE, "Flush", &())?)
        }
    }
}

pub(super) fn read_text(file: Option<&PathBuf>) -> Result<String, Failure> {
    let Some(path) = file else {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    };
    plain_file::read_text_from_any(path, TEXT_BYTES_MAX)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
}

/// Sets by channel.
pub(super) fn parse_channels(text: &str) -> Result<Vec<Vec<CoefficientSet>>, String> {
    let mut channels = vec![Vec::new()];
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or("").trim();
        if content.is_empty() {
            if channels.last().is_some_and(|sets| !sets.is_empty()) {
                channels.push(Vec::new());
            }
            continue;
        }
        let set = parse_set(content).map_err(|error| format!("line {line} {error}"))?;
        if let Some(sets) = channels.last_mut() {
            sets.push(set);
        }
    }
    if channels.last().is_some_and(Vec::is_empty) {
        channels.pop();
    }
    match channels.is_empty() {
        true => Err("there is no coefficient set".to_owned()),
        false => Ok(channels),
    }
}

fn parse_set(line: &str) -> Result<CoefficientSet, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [a, shift_a, b, shift_b, c, step, frequency] = words[..] else {
        return Err(format!(
            "is `{line}`; seven integers are expected: a shift_a b shift_b c step freq"
        ));
    };
    Ok(CoefficientSet {
        a: field("a", a, i16::MIN..=i16::MAX)?,
        b: field("b", b, i16::MIN..=i16::MAX)?,
        c: field("c", c, i32::MIN..=i32::MAX)?,
        step: field("step", step, 0..=7)?,
        frequency: field("freq", frequency, 0..=7)?,
        shift_a: field("shift_a", shift_a, 0..=SHIFT_MAX)?,
        shift_b: field("shift_b", shift_b, 0..=SHIFT_MAX)?,
    })
}

/// One number of a set.
fn field<N: FromStr + PartialOrd + Display>(
    name: &str,
    text: &str,
    allowed: RangeInclusive<N>,
) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| {
        let (from, to) = (allowed.start(), allowed.end());
        format!("has `{text}` for {name}; allowed is a whole number of {from} to {to}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_parted_by_blank_lines_and_errors_name_the_line() {
        let text = "1 2 3 4 5 0 7 # first\n\n\n-1 0 -2 0 -3 1 1\n0 0 0 0 9 0 0\n";
        let channels = parse_channels(text).unwrap();
        assert_eq!(channels.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(
            (channels[0][0].a, channels[0][0].shift_a, channels[0][0].c),
            (1, 2, 5)
        );
        assert_eq!((channels[1][0].b, channels[1][0].step), (-2, 1));
        assert!(
            parse_channels("1 2 3\n")
                .unwrap_err()
                .contains("line 1 is `1 2 3`")
        );
        assert!(parse_channels("\n# nothing\n").is_err());
        for (text, said) in [
            (
                "40000 0 0 0 0 0 0",
                "line 1 has `40000` for a; allowed is a whole number of -32768 to 32767",
            ),
            (
                "0 64 0 0 0 0 0",
                "for shift_a; allowed is a whole number of 0 to 63",
            ),
            ("0 0 -32769 0 0 0 0", "`-32769` for b"),
            (
                "0 0 0 0 2147483648 0 0",
                "for c; allowed is a whole number of -2147483648 to 2147483647",
            ),
            (
                "0 0 0 0 0 8 0",
                "`8` for step; allowed is a whole number of 0 to 7",
            ),
            ("0 0 0 0 0 0 1.5", "`1.5` for freq"),
            ("1 2 3 4 5 6 7 8", "seven integers are expected"),
        ] {
            let error = parse_channels(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
