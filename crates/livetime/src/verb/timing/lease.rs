//! Leases on the command line: conditions that stay for a while after the command that made them.
//!
//! A command is a client that goes at once. What it makes stays for good if it is disowned, or for
//! the time of a lease; who shows the token takes the lease over and so starts its time again.

use std::time::{Duration, Instant};

use clap::Subcommand;
use livetime_client::{ClientError, TimingClient};
use livetime_timing_daemon::lease::LEASE_MAX;
use serde_json::json;

use super::{Daemon, Failure};
use crate::console::{print_line, say};

/// Digits of a token.
const TOKEN_DIGITS: usize = 32;
/// How long a lease is waited for whose holder is connected: another command is about to end.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const HOLDER_PAUSE: Duration = Duration::from_millis(10);

/// The token of a lease to be taken over.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeOption {
    /// Take over the lease of this token first, whose time then starts again
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    resume: Option<String>,
}

impl ResumeOption {
    /// Takes the lease over; how many sinks and conditions are under it.
    pub(super) fn resume(&self, client: &TimingClient) -> Result<Option<u32>, Failure> {
        let token = self.resume.as_deref();
        token.map(|token| take_over(client, token)).transpose()
    }
}

/// Takes a lease over, as soon as its holder has gone.
fn take_over(client: &TimingClient, token: &str) -> Result<u32, Failure> {
    let start = Instant::now();
    loop {
        let resumed = client.resume(token);
        let is_held = match &resumed {
            // `Renew` tells more than the words of a refusal, and takes nothing.
            Err(ClientError::Refused(_)) => client.renew(token).is_ok_and(|(_, held)| held),
            _ => false,
        };
        if !is_held || start.elapsed() > HOLDER_PATIENCE {
            return Ok(resumed?);
        }
        std::thread::sleep(HOLDER_PAUSE);
    }
}

/// How long what a command makes is to stay.
#[derive(Debug, clap::Args)]
pub(super) struct LeaseOptions {
    /// Let it stay so many seconds after this command, 1 to 3600, and print a token
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "resume")]
    lease: Option<u32>,
    #[command(flatten)]
    token: ResumeOption,
}

impl LeaseOptions {
    /// Takes a lease over if there is a token for one.
    pub(super) fn resume(&self, client: &TimingClient) -> Result<Option<u32>, Failure> {
        self.token.resume(client)
    }

    /// Has what this client has made stay; the token, if it is not for good.
    pub(super) fn keep(
        &self,
        client: &TimingClient,
        path: &str,
    ) -> Result<Option<String>, Failure> {
        if let Some(seconds) = self.lease {
            let token = client.lease(Duration::from_secs(seconds.into()))?;
            say(format_args!(
                "it stays {seconds} s after this command; `livetime timing lease renew {token}` \
                 starts the time again"
            ));
            return Ok(Some(token));
        }
        if self.token.resume.is_none() {
            client.disown(path)?;
        }
        Ok(self.token.resume.clone())
    }
}

fn seconds(text: &str) -> Result<u32, String> {
    let longest = LEASE_MAX.as_secs();
    let seconds = text.parse().ok();
    seconds
        .filter(|seconds| (1..=longest).contains(&u64::from(*seconds)))
        .ok_or_else(|| format!("a lease is of 1 to {longest} whole seconds"))
}

fn token(text: &str) -> Result<String, String> {
    let is_token = text.len() == TOKEN_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_token {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!(
            "a token is {TOKEN_DIGITS} hexadecimal digits, as `cond add --lease` prints them"
        )),
    }
}

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    #[command(subcommand)]
    act: LeaseAct,
}

#[derive(Debug, Subcommand)]
enum LeaseAct {
    /// Start the time of a lease again; it stays its holder's, connected or gone
    Renew(Held),
    /// End a lease: its sinks and conditions go with this command
    End(Held),
}

/// A lease that somebody holds the token of.
#[derive(Debug, clap::Args)]
struct Held {
    /// Token, as `cond add --lease` printed it
    #[arg(value_parser = token)]
    token: String,
    /// Print one JSON document (livetime.timing_lease/1)
    #[arg(long)]
    json: bool,
}

/// Renews or ends a lease.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let client = options.daemon.connect()?;
    let (held, state) = match &options.act {
        LeaseAct::Renew(held) => (held, "renewed"),
        LeaseAct::End(held) => (held, "ended"),
    };
    let (objects, holder_is_connected) = match &options.act {
        LeaseAct::Renew(_) => client.renew(&held.token)?,
        LeaseAct::End(_) => {
            let objects = take_over(&client, &held.token)?;
            client.lease(Duration::ZERO)?;
            (objects, false)
        }
    };
    if held.json {
        return Ok(print_line(json!({
            "schema": "livetime.timing_lease/1",
            "token": held.token,
            "state": state,
            "objects": objects,
            "holder_is_connected": holder_is_connected,
        }))?);
    }
    let waits = if holder_is_connected {
        "; its holder is connected, and its time starts when that one goes"
    } else {
        ""
    };
    Ok(print_line(format_args!(
        "lease {state}; sinks and conditions under it: {objects}{waits}"
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lengths_and_tokens_that_can_be_are_sent() {
        assert_eq!(seconds("1"), Ok(1));
        assert_eq!(seconds("3600"), Ok(3600));
        for wrong in ["0", "3601", "-1", "1.5", "60 s", "4294967297"] {
            assert!(seconds(wrong).unwrap_err().contains("1 to 3600"), "{wrong}");
        }
        let good = "0123456789abcdef0123456789ABCDEF";
        assert_eq!(token(good), Ok(good.to_ascii_lowercase()));
        for wrong in [&good[1..], "", "0123456789abcdef0123456789abcdeg"] {
            assert!(token(wrong).unwrap_err().contains("32"), "{wrong}");
        }
    }
}
