//! Records and states as text and JSON lines.

use livetime_client::{EventId, RecordKind, TimingRecord};
use livetime_timing::{TAG_OFF, TAG_ON};
use serde_json::{Value, json};

/// A record as users of such tools know it.
pub(super) fn record_line(record: &TimingRecord, verbose: bool) -> String {
    match record.kind {
        RecordKind::Gap => {
            return format!(
                "lost {} messages, numbers {} to {}",
                record.id, record.param, record.deadline.0
            );
        }
        RecordKind::Restart if record.is_renewal() => {
            return "the daemon has ended the subscription, as its sink or a condition was destroyed; it \
                    is made anew, and what passed meanwhile is not known"
                .to_owned();
        }
        RecordKind::Restart => {
            return format!(
                "the daemon was away and is back in epoch {}; what passed meanwhile is not known",
                record.epoch
            );
        }
        RecordKind::Message => {}
    }
    let id = if verbose {
        id_fields(record.id)
    } else {
        format!("EvtID: {:#018x}", record.id)
    };
    let flags: String = record
        .flags
        .names()
        .map(|name| match name {
            "late" => format!(" !late (by {} ns)", late_by(record)),
            "early" => format!(" !early (by {} ns)", -late_by(record)),
            "delayed" => format!(" !delayed (by {} ns)", late_by(record)),
            name => format!(" !{name}"),
        })
        .collect();
    format!(
        "tDeadline: {:#018x} {id} Param: {:#018x}{flags}",
        record.deadline.0, record.param
    )
}

/// How much later than its deadline an action was executed \[ns\]: exactly, since a deadline may be
/// further away than 63 bits of nanoseconds can say.
fn late_by(record: &TimingRecord) -> i128 {
    i128::from(record.executed.0) - i128::from(record.deadline.0)
}

/// The fields of an event ID.
fn id_fields(id: u64) -> String {
    match EventId(id).fields() {
        Some(fields) => format!(
            "FID: {} GID: {:#05x} EVTNO: {:#05x} FLAGS: {:#x} SID: {:#05x} BPID: {:#06x} RES: {:#x}",
            fields.format as u8,
            fields.group,
            fields.number,
            fields.flags,
            fields.sequence,
            fields.beam_process,
            fields.reserved
        ),
        None => format!("EvtID: {id:#018x} (format {} is not known)", id >> 60),
    }
}

/// A record as one JSON line.
pub(super) fn record_json(record: &TimingRecord) -> Value {
    let kind = match record.kind {
        RecordKind::Message => "message",
        RecordKind::Gap => {
            return json!({
                "schema": "livetime.timing_record/1",
                "kind": "gap",
                "lost": record.id.to_string(),
                "first": record.param.to_string(),
                "last": record.deadline.0.to_string(),
                "epoch": record.epoch,
            });
        }
        RecordKind::Restart => {
            return json!({
                "schema": "livetime.timing_record/1",
                "kind": if record.is_renewal() { "renewal" } else { "restart" },
                "epoch": record.epoch,
            });
        }
    };
    let names: Vec<&str> = record.flags.names().collect();
    json!({
        "schema": "livetime.timing_record/1",
        "kind": kind,
        "sequence": record.sequence.to_string(),
        "id": format!("{:#018x}", record.id),
        "param": format!("{:#018x}", record.param),
        "deadline_tai_ns": record.deadline.0.to_string(),
        "executed_tai_ns": record.executed.0.to_string(),
        "late_by_ns": record.late_by_ns(),
        "match_lead_ns": record.match_lead_ns,
        "enqueue_delay_ns": record.enqueue_delay_ns,
        "tef": record.tef,
        "condition": record.condition,
        "flags": names,
        "class": record.class.name(),
        "epoch": record.epoch,
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The state of the daemon for people.
pub(super) fn status_text(status: &Value) -> String {
    let locked = if status["clock"]["locked"] == true {
        "locked".to_owned()
    } else {
        let clock = &status["clock"];
        let offset = clock["offset_ns"].as_i64().unwrap_or(0);
        format!("NOT LOCKED, {}, {offset:+} ns off", word(&clock["state"]))
    };
    let mut text = format!(
        "receiver {}, epoch {}, clock {} ({locked}), TAI {} ns\n",
        word(&status["receiver"]),
        number(&status["epoch"]),
        word(&status["clock"]["source"]),
        word(&status["time_tai_ns"]),
    );
    text += &format!(
        "messages {}, actions {}, unqueued {}, withdrawn {}, slow deliveries {}, still to play {} messages\n",
        number(&status["messages"]),
        number(&status["actions"]),
        number(&status["unqueued"]),
        number(&status["withdrawn"]),
        number(&status["slow_deliveries"]),
        number(&status["playing"])
    );
    let channel = &status["channel"];
    let most: Vec<u64> = list(&channel["most_full"]).iter().map(number).collect();
    text += &format!(
        "free conditions {}, most full {most:?} (capacity {}), early threshold {} ns, latency {} ns\n",
        number(&status["conditions"]["free"]),
        number(&channel["capacity"]),
        number(&channel["early_threshold_ns"]),
        number(&channel["latency_ns"])
    );
    match number(&status["start_tags_lost"]) {
        0 => {}
        lost => {
            text += &format!(
                "warning: {lost} start tags did not reach the function generators, whose thread was too slow\n"
            );
        }
    }
    for refusal in list(&status["worker"]["refused_by_the_machine"]) {
        text += &format!("warning: {}\n", word(refusal));
    }
    if let Some(error) = status["state_file_error"].as_str() {
        text += &format!("warning: {error}\n");
    }
    text.extend(list(&status["sinks"]).iter().map(sink_lines));
    for client in list(&status["clients"]) {
        text += &format!(
            "\nclient {} ({}, {}): user {}, process {}",
            word(&client["id"]),
            word(&client["connection"]),
            word(&client["role"]),
            number(&client["uid"]),
            number(&client["pid"])
        );
    }
    match number(&status["leases_waiting"]) {
        0 => {}
        waiting => text += &format!("\nleases of clients that are gone: {waiting}"),
    }
    text
}

/// A sink with its conditions and subscriptions, behind an empty line.
fn sink_lines(sink: &Value) -> String {
    let mut text = format!(
        "\n{} ({}){}\n  matched {}, delivered {}, late {}, early {}, conflict {}, delayed {}, refused {}, overflow {}\n",
        word(&sink["name"]),
        word(&sink["kind"]),
        match word(&sink["owner"]) {
            "" => String::new(),
            owner => format!(", owned by client {owner}"),
        },
        number(&sink["matched"]),
        number(&sink["delivered"]),
        number(&sink["late"]),
        number(&sink["early"]),
        number(&sink["conflict"]),
        number(&sink["delayed"]),
        number(&sink["refused"]),
        number(&sink["overflow"])
    );
    text.extend(condition_lines(sink));
    for listener in list(&sink["subscriptions"]) {
        text += &format!(
            "  subscription {} of client {}: {} {} {}, offered {}, unqueued {}, overran {}, delivered late {}, lost by the reader {}\n",
            number(&listener["subscription"]),
            word(&listener["client"]),
            word(&listener["mode"]),
            word(&listener["class"]),
            word(&listener["overflow_rule"]),
            number(&listener["offered"]),
            number(&listener["unqueued"]),
            number(&listener["overran"]),
            number(&listener["delivered_late"]),
            number(&listener["lost_by_reader"])
        );
    }
    text
}

/// Conditions of a sink: ID, mask, offset, what it does or its tag, what it accepts (`dcel`),
/// active or not.
pub(super) fn condition_lines(sink: &Value) -> impl Iterator<Item = String> {
    let kind = word(&sink["kind"]);
    let conditions = list(&sink["conditions"]).iter();
    conditions.map(move |condition| condition_line(kind, condition))
}

fn condition_line(kind: &str, condition: &Value) -> String {
    let empty = Vec::new();
    let accepted = condition["accept"].as_array().unwrap_or(&empty);
    let letters: String = [
        ("delayed", 'd'),
        ("conflict", 'c'),
        ("early", 'e'),
        ("late", 'l'),
    ]
    .into_iter()
    .map(|(name, letter)| {
        let accepts = accepted.iter().any(|flag| flag == name);
        if accepts { letter } else { '-' }
    })
    .collect();
    let action = match (kind, number(&condition["tag"])) {
        ("output", tag) if tag == u64::from(TAG_ON) => "on".to_owned(),
        ("output", tag) if tag == u64::from(TAG_OFF) => "off".to_owned(),
        (_, tag) => format!("tag {tag}"),
    };
    format!(
        "  condition {}: {} {} offset {} ns, {action}, accepts {letters}, {}{}\n",
        word(&condition["condition"]),
        word(&condition["id"]),
        word(&condition["mask"]),
        condition["offset_ns"].as_i64().unwrap_or(0),
        if condition["active"] == true {
            "active"
        } else {
            "inactive"
        },
        if condition["hardware"] == true {
            ""
        } else {
            ", software only"
        },
    )
}

#[cfg(test)]
mod tests {
    use livetime_client::{PriorityClass, RecordFlags, TaiNs};

    use super::*;

    fn record() -> TimingRecord {
        TimingRecord {
            sequence: 3,
            kind: RecordKind::Message,
            class: PriorityClass::Generic,
            id: 0x1123_1010_0000_0040,
            param: 0x55,
            deadline: TaiNs(1_000),
            executed: TaiNs(21_480),
            tef: 0,
            condition: 1,
            flags: RecordFlags(RecordFlags::LATE),
            match_lead_ns: 0,
            enqueue_delay_ns: 12,
            epoch: 2,
        }
    }

    #[test]
    fn a_condition_says_what_an_output_does_and_the_tag_of_a_bus() {
        let condition = |tag| json!({"condition": "0.0", "tag": tag, "accept": []});
        for (kind, tag, said) in [
            ("output", TAG_ON, "ns, on, accepts"),
            ("output", TAG_OFF, "ns, off, accepts"),
            ("bus_tag", TAG_ON, "ns, tag 2, accepts"),
        ] {
            let sink = json!({"kind": kind, "conditions": [condition(tag)]});
            let line: String = condition_lines(&sink).collect();
            assert!(line.contains(said), "{line}");
        }
    }

    #[test]
    fn lines_read_as_users_know_them() {
        assert_eq!(
            record_line(&record(), false),
            "tDeadline: 0x00000000000003e8 EvtID: 0x1123101000000040 \
             Param: 0x0000000000000055 !late (by 20480 ns)"
        );
        assert_eq!(
            record_line(&record(), true),
            "tDeadline: 0x00000000000003e8 FID: 1 GID: 0x123 EVTNO: 0x101 FLAGS: 0x0 SID: 0x000 \
             BPID: 0x0001 RES: 0x0 Param: 0x0000000000000055 !late (by 20480 ns)"
        );
        let renewal = TimingRecord::renewal(TaiNs(0), 1);
        assert!(record_line(&renewal, false).contains("is made anew"));
        assert_eq!(record_json(&renewal)["kind"], "renewal");
        assert_eq!(
            record_json(&TimingRecord::restart(TaiNs(0), 1))["kind"],
            "restart"
        );
        let gap = TimingRecord::gap(5, 9, 5, TaiNs(0), 1);
        assert_eq!(record_line(&gap, false), "lost 5 messages, numbers 5 to 9");
    }

    #[test]
    fn what_found_no_place_in_the_queue_is_in_the_text_too() {
        let sink = json!({"name": "s", "subscriptions": [{"unqueued": 7}]});
        let status = json!({"unqueued": 9, "playing": 32, "sinks": [sink]});
        let text = status_text(&status);
        for said in [
            "actions 0, unqueued 9,",
            "offered 0, unqueued 7,",
            "still to play 32 messages",
        ] {
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_deadline_at_the_end_of_time_is_far_ahead() {
        let early = TimingRecord {
            deadline: TaiNs(u64::MAX),
            flags: RecordFlags(RecordFlags::EARLY),
            ..record()
        };
        let line = record_line(&early, false);
        assert!(
            line.ends_with(" !early (by 18446744073709530135 ns)"),
            "{line}"
        );
        assert_eq!(record_json(&early)["late_by_ns"], i64::MIN);
    }

    #[test]
    fn a_state_file_that_cannot_be_written_is_in_the_text() {
        let mut status = json!({ "receiver": "tr0", "state_file_error": null });
        assert!(!status_text(&status).contains("warning"));
        let error = "cannot write state file k.json: No space left on device";
        status["state_file_error"] = error.into();
        assert!(status_text(&status).contains(&format!("\nwarning: {error}\n")));
    }

    #[test]
    fn start_tags_that_were_lost_are_in_the_text() {
        let mut status = json!({ "receiver": "tr0", "start_tags_lost": 0 });
        assert!(!status_text(&status).contains("warning"));
        status["start_tags_lost"] = 3.into();
        assert!(status_text(&status).contains("\nwarning: 3 start tags did not reach "));
    }

    #[test]
    fn json_lines_have_numbers_that_fit_as_strings() {
        let line = record_json(&record());
        assert_eq!(line["executed_tai_ns"], "21480");
        assert_eq!(line["flags"], json!(["late"]));
        assert_eq!(
            record_json(&TimingRecord::gap(5, 9, 5, TaiNs(0), 1))["lost"],
            "5"
        );
    }
}
