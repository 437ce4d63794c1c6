//! `livetime timing audit`: messages sent against messages received.
//!
//! A local generator plays counted messages with an audit message after every thousand through the
//! daemon; the counters of the audit messages tell what a listener should have seen. `--drop`
//! leaves messages out on purpose, to see that the audit finds them. What a listener's own ring
//! lost is reported apart.

use std::time::Duration;

use livetime_client::{
    EventId, Filter, Listener, RecordKind, SubscriptionOptions, TaiNs, TimingMessage,
};
use livetime_timing::{AuditSender, IdFilter, LossAudit};
use serde_json::json;

use super::clock::is_virtual;
use super::control::beyond_the_end;
use super::{Daemon, Failure};
use crate::console::{print_line, say};

/// Options of the act.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Messages to be sent
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    messages: u64,
    /// Messages per second
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: u64,
    /// Leave the message of this number out, from 0, to see it found; may be given several times
    #[arg(long, value_name = "NUMBER")]
    drop: Vec<u64>,
    /// Print one JSON document (livetime.timing_audit/1)
    #[arg(long)]
    json: bool,
}

/// Group of the generator's messages, and the number of its audit messages.
const GROUP: u16 = 0xFAD;
const AUDIT_NUMBER: u16 = 0xFFF;
/// Messages between two audit messages.
const AUDIT_EVERY: u64 = 1_000;
/// Time before the first message.
const START_NS: u64 = 20_000_000;
/// A listener that has heard nothing for so long has lost the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Audits.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    check_dropped(options)?;
    let address = options.daemon.address();
    let filter = Filter::group(GROUP);
    let mut listener = Listener::start(&address, &[filter], &SubscriptionOptions::default())?;
    let client = options.daemon.connect()?;
    let start = client.raw_time()?.0.checked_add(START_NS);
    let length_ns = options.messages * period_ns(options) + 1;
    let start = start.filter(|start| start.checked_add(length_ns).is_some());
    let start = start.ok_or_else(|| beyond_the_end("the audit"))?;
    let audit_id = EventId(Filter::number(GROUP, AUDIT_NUMBER).id);
    let messages = generate(options, start, filter.id, audit_id);
    let last = messages.last().map_or(0, |message| message.param);
    client.play(&messages, 1_000_000, 1, 0)?;
    let stands_still = is_virtual(&client)?;
    if stands_still {
        say("the clock is virtual and stands still until `livetime timing clock advance` moves it");
    }
    let audited = IdFilter::prefix(EventId(filter.id), filter.mask)?;
    let mut audit = LossAudit::new(audited, audit_id);
    let mut lost_in_ring = 0u64;
    loop {
        let Some(record) = listener.next(Some(PATIENCE))? else {
            let cause = if stands_still {
                "the daemon's clock is virtual and was not advanced so far"
            } else {
                "is the daemon overloaded?"
            };
            return Err(Failure::new(format!(
                "nothing was received for {} s before the last audit message; {cause}",
                PATIENCE.as_secs()
            )));
        };
        match record.kind {
            RecordKind::Gap => lost_in_ring += record.id,
            RecordKind::Restart => {
                return Err(Failure::new(match record.is_renewal() {
                    true => "the sink of the audit or its condition was destroyed during the audit",
                    false => "the daemon was restarted during the audit",
                }));
            }
            RecordKind::Message => {
                let id = EventId(record.id);
                let message = TimingMessage::new(id, record.param, record.deadline);
                audit.handle_message(&message);
                if id == audit_id && record.param == last {
                    break;
                }
            }
        }
    }
    print_audit(&audit, lost_in_ring, options.json)?;
    let total = audit.total();
    let expected = options.drop.len() as u64;
    if !is_accounted_for(total.lost(), expected, lost_in_ring) || total.surplus() > 0 {
        return Err(Failure::new(format!(
            "{} messages lost, {} were left out on purpose",
            total.lost(),
            expected
        )));
    }
    Ok(())
}

/// Whether losses are those on purpose and those of the listener's own ring. Among the latter may be audit
/// messages, which are not counted, and messages before the first of these that was heard.
fn is_accounted_for(lost: u64, on_purpose: u64, lost_in_ring: u64) -> bool {
    match lost_in_ring {
        0 => lost == on_purpose,
        _ => lost <= on_purpose + lost_in_ring,
    }
}

/// Whether each message to be left out is there, and named once.
fn check_dropped(options: &Options) -> Result<(), Failure> {
    for (index, number) in options.drop.iter().enumerate() {
        if *number >= options.messages {
            return Err(Failure::new(format!(
                "--drop {number}: allowed is 0 to {}, the numbers of the {} messages; name one of \
                 them, or send more with --messages",
                options.messages - 1,
                options.messages
            )));
        }
        if options.drop[..index].contains(number) {
            return Err(Failure::new(format!(
                "--drop {number} is given twice; a message can be left out once"
            )));
        }
    }
    Ok(())
}

/// Prints what was sent, received and lost.
fn print_audit(audit: &LossAudit, lost_in_ring: u64, as_json: bool) -> std::io::Result<()> {
    let total = audit.total();
    if as_json {
        print_line(json!({
            "schema": "livetime.timing_audit/1",
            "sent": total.sent,
            "received": total.received,
            "lost": total.lost(),
            "surplus": total.surplus(),
            "lost_in_own_ring": lost_in_ring,
            "comparisons": audit.comparisons(),
        }))
    } else {
        print_line(format_args!(
            "sent {}, received {}, lost {} ({} of them in the listener's own ring), surplus {}",
            total.sent,
            total.received,
            total.lost(),
            lost_in_ring,
            total.surplus()
        ))
    }
}

/// From one message to the next.
fn period_ns(options: &Options) -> u64 {
    1_000_000_000 / options.rate.max(1)
}

/// Counted messages with their audit messages; the first audit message comes before all.
fn generate(options: &Options, start: u64, group_id: u64, audit_id: EventId) -> Vec<TimingMessage> {
    let period_ns = period_ns(options);
    let mut sender = AuditSender::new(audit_id);
    let mut messages = vec![sender.message(TaiNs(start))];
    for n in 0..options.messages {
        let time = TaiNs(start + (n + 1) * period_ns);
        sender.handle_sent();
        if !options.drop.contains(&n) {
            messages.push(TimingMessage::new(EventId(group_id), n, time));
        }
        if (n + 1) % AUDIT_EVERY == 0 || n + 1 == options.messages {
            messages.push(sender.message(TaiNs(time.0 + 1)));
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_messages_that_a_ring_lost_are_no_losses_of_others() {
        assert!(is_accounted_for(2, 2, 0));
        assert!(!is_accounted_for(1, 2, 0) && !is_accounted_for(3, 2, 0));
        assert!(is_accounted_for(5000, 0, 5005));
        assert!(!is_accounted_for(5006, 0, 5005));
    }
}
