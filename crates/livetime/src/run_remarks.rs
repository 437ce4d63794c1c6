//! What whoever reads the events of a run should know of it although nothing was lost with it: for the
//! text at the end of the run, and for its report.
//!
//! All of it is read from the summary alone, since a report is also made of a run that ended long ago.

use std::collections::BTreeMap;

use livetime_node::FlaggedFragments;
use livetime_store::RunSummary;
use livetime_store::summary::WriterSummary;
use livetime_wire::UnitKind;

use crate::run_summary::roles_without_counters;

/// The remarks on a run, a sentence or two each.
pub(crate) fn remarks(summary: &RunSummary) -> Vec<String> {
    let unsummed = summary.histograms_not_summed.iter();
    let lost_writers = summary.writers.iter().filter(|writer| writer.lost);
    let mut remarks: Vec<String> = unsummed.map(|name| unsummed_remark(name)).collect();
    remarks.extend(died_remark(summary));
    remarks.extend(interpreters_remark(summary));
    remarks.extend(lost_writers.map(lost_writer_remark));
    remarks.extend(over_time_remark(summary));
    remarks.extend(front_end_remarks(summary));
    remarks.extend(flagged_remark(summary));
    remarks.extend(oversized_remark(summary));
    remarks.extend(truncated_remark(summary));
    remarks.extend(unrecorded_remark(summary));
    remarks.extend(uncounted_remark(summary));
    remarks.extend(late_remark(summary));
    remarks
}

/// The sum of the counters of that name over all roles.
fn of_roles(summary: &RunSummary, name: &str) -> u64 {
    let roles = summary.roles.values();
    roles.filter_map(|role| role.get(name)).sum()
}

fn unsummed_remark(name: &str) -> String {
    format!(
        "filter units gave histogram {name} different bins: the run file has what one of them filled. \
         Give it the same `bins`, `range` and `label` in every batch"
    )
}

/// That counters are missing in the sums.
fn died_remark(summary: &RunSummary) -> Option<String> {
    let died = roles_without_counters(summary);
    (!died.is_empty()).then(|| {
        format!(
            "died with their counters of paths, streams, reasons, latencies and bytes, which lack their \
             share: {}",
            died.join(", ")
        )
    })
}

/// That interpreters of filters have died, whatever became of the events that they had.
fn interpreters_remark(summary: &RunSummary) -> Option<String> {
    let units = summary.roles.iter();
    let died = units.filter_map(|(role, counters)| match counters.get("filter.deaths") {
        None | Some(0) => None,
        Some(deaths) => Some(format!("{role} {deaths}")),
    });
    let died: Vec<String> = died.collect();
    (!died.is_empty()).then(|| {
        format!(
            "deaths of the process of the Python filter: {}; events that it had were given to it once \
             more, and are in the error stream where it died of them again",
            died.join(", ")
        )
    })
}

/// What became of a writer that was lost with its building group.
fn lost_writer_remark(writer: &WriterSummary) -> String {
    let host = writer.host.as_ref();
    let there = host.map_or(String::new(), |host| format!(" on host {host}"));
    let mut remark = format!(
        "{} was lost with its group: {} events are in {}{there}, which is as it left it",
        writer.role, writer.events_stored, writer.file
    );
    if writer.events_built_again > 0 {
        remark += &format!(
            "; up to {} of its last events may be there and in another file, too",
            writer.events_built_again
        );
    }
    remark
}

/// That events took the Level-3 menu too long.
fn over_time_remark(summary: &RunSummary) -> Option<String> {
    let menu = summary.filter_menu.as_ref()?;
    (menu.over_time > 0).then(|| {
        format!(
            "{} events took longer than `filter.event_limit`: they are in the error stream, and in no \
             count of paths and streams",
            menu.over_time
        )
    })
}

/// What front-ends of users have not sent, or sent in vain.
fn front_end_remarks(summary: &RunSummary) -> Vec<String> {
    let listed = |prefix: &str| {
        let roles = summary.roles.values();
        let names = roles.flat_map(|role| role.keys());
        let sources = names.filter_map(|name| name.strip_prefix(prefix));
        sources.collect::<Vec<_>>().join(", ")
    };
    let count = |name: &str| of_roles(summary, name);
    let mut remarks = Vec::new();
    let unheard = listed("front_end_unheard_of_");
    if !unheard.is_empty() {
        remarks.push(format!(
            "no front-end sent anything of source {unheard}: no trigger is taken until each source has \
             sent its first part"
        ));
    }
    let passed_over = count("front_end_fragments_passed_over");
    let (absent, silent) = (
        count("front_end_fragments_absent").saturating_sub(passed_over),
        listed("front_end_silent_of_"),
    );
    if passed_over > 0 {
        remarks.push(format!(
            "empty fragments of triggers of which front-ends sent nothing, but later ones: {passed_over}; \
             their numbers begin with 1 in each run and leave none out, and a network may lose datagrams"
        ));
    }
    if absent > 0 {
        let at_end = match silent.is_empty() {
            true => String::new(),
            false => format!("; silent at the end: source {silent}"),
        };
        remarks.push(format!(
            "empty fragments, since front-ends did not send theirs within `source.wait`, or had sent their \
             end: {absent}; their status says so{at_end}"
        ));
    }
    for (name, what) in [
        ("front_end_frames_late", "came too late for their triggers"),
        ("front_end_frames_twice", "came a second time"),
        (
            "front_end_frames_refused",
            "were not what this run takes (an unknown source, another run, too many words, numbers that do \
             not begin with 1)",
        ),
        (
            "front_end_datagrams_ahead",
            "came as datagrams more than `source.queue` triggers before the slowest front-end",
        ),
        (
            "front_end_datagrams_dropped",
            "came as datagrams faster than the run could read them, and that the kernel dropped (raise \
             `net.core.rmem_max`, or send over streams)",
        ),
        (
            "front_end_frames_discarded",
            "were of triggers that were not complete at the end of the run",
        ),
    ] {
        if count(name) > 0 {
            remarks.push(format!(
                "frames of front-ends that {what}: {}; they are in no event",
                count(name)
            ));
        }
    }
    remarks
}

/// That fragments came with faults, and whose.
fn flagged_remark(summary: &RunSummary) -> Option<String> {
    let mut flagged = FlaggedFragments::default();
    for details in summary.roles.values() {
        flagged.add(details);
    }
    let listed = |counts: &BTreeMap<String, u64>| {
        let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    };
    (flagged.all > 0).then(|| {
        format!(
            "fragments with faults: {} ({}), by source: {}; their events are built and say so; a filter \
             may reject what it cannot read",
            flagged.all,
            listed(&flagged.by_fault),
            listed(&flagged.by_source)
        )
    })
}

/// That byte credits were set for smaller events than came.
fn oversized_remark(summary: &RunSummary) -> Option<String> {
    let oversized = of_roles(summary, "events_oversized");
    (oversized > 0).then(|| {
        format!(
            "{oversized} events were larger than `builder.event_bytes`, so that a builder unit may have \
             held more than `builder.credit_bytes`: raise `event_bytes` to the largest event"
        )
    })
}

/// That trigger packets were longer than they may be: what did not fit is in no decision.
fn truncated_remark(summary: &RunSummary) -> Option<String> {
    let truncated = of_roles(summary, "packets_truncated");
    (truncated > 0).then(|| {
        format!(
            "{truncated} of {} trigger packets were longer than `trigger.packet_words_max` and lost \
             items: Level 2 decided without these, so raise it, and `page` of the link to trg0 with it",
            summary.counts.triggers
        )
    })
}

/// That trigger packets are not in their files.
fn unrecorded_remark(summary: &RunSummary) -> Option<String> {
    let unrecorded = of_roles(summary, "packets_unrecorded");
    let all = unrecorded + of_roles(summary, "packets_recorded");
    (unrecorded > 0).then(|| {
        format!(
            "{unrecorded} of {all} trigger packets were not recorded: the disk was full, or slower than \
             they came, or a write failed"
        )
    })
}

/// That the last trigger packets of nodes that died are not in their files.
fn uncounted_remark(summary: &RunSummary) -> Option<String> {
    let uncounted = summary.packets_uncounted?;
    let nodes = summary.roles.iter();
    let died = nodes.filter(|(role, counters)| {
        role.starts_with(UnitKind::Trigger.prefix()) && !counters.contains_key("packets_recorded")
    });
    let died: Vec<&str> = died.map(|(role, _)| role.as_str()).collect();
    Some(format!(
        "{} died with the count of trigger packets that it recorded: of {uncounted}, those of about the \
         last second are in no file; `livetime replay --into trigger` says how many",
        died.join(", ")
    ))
}

/// That most triggers were offered too late, as when an aligned run has begun before its roles were there.
fn late_remark(summary: &RunSummary) -> Option<String> {
    let late = of_roles(summary, "refused_late");
    let offered = summary.counts.offered;
    (late > offered / 2).then(|| {
        format!(
            "{late} of {offered} offered triggers were refused as late: the front-ends stood still, or the \
             time of the run, which `align` of [timing] sets, had begun long before they were there; then \
             give it more `duration`, or count `triggers`"
        )
    })
}

#[cfg(test)]
mod tests {
    use livetime_store::FilterMenuSummary;
    use livetime_store::RunSummary;
    use livetime_store::summary::{Latencies, RunIdentification};
    use livetime_wire::{ChainCounts, LossCounts};

    use super::*;

    fn summary() -> RunSummary {
        let run = RunIdentification {
            number: 1,
            ..RunIdentification::default()
        };
        let counts = ChainCounts {
            offered: 600,
            triggers: 500,
            ..ChainCounts::default()
        };
        RunSummary::new(run, &counts, &LossCounts::default(), Latencies::default())
    }

    #[test]
    fn a_run_without_peculiarities_has_no_remark() {
        let mut summary = summary();
        assert_eq!(remarks(&summary), Vec::<String>::new());
        let counters = [("packets_recorded", 500), ("packets_unrecorded", 0)];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        summary.roles.insert("trg0".to_owned(), counters.into());
        summary.filter_menu = Some(FilterMenuSummary::default());
        assert_eq!(remarks(&summary), Vec::<String>::new());
    }

    #[test]
    fn trigger_numbers_are_blamed_only_where_later_ones_came() {
        let said = |counters: &[(&str, u64)]| {
            let mut summary = summary();
            let counters = counters.iter();
            let counters = counters.map(|(name, count)| (format!("front_end_{name}"), *count));
            summary.roles.insert("src0".to_owned(), counters.collect());
            let said = remarks(&summary);
            let blames = |words: &str| said.iter().any(|remark| remark.contains(words));
            (blames("begin with 1"), blames("source.wait"))
        };
        let absent = |all: u64, passed_over: u64| {
            said(&[
                ("fragments_absent", all),
                ("fragments_passed_over", passed_over),
            ])
        };
        assert_eq!(absent(999, 999), (true, false));
        assert_eq!(absent(999, 0), (false, true));
        assert_eq!(absent(999, 9), (true, true));
        assert_eq!(absent(0, 0), (false, false));
    }

    #[test]
    fn counters_of_all_roles_are_summed_and_told() {
        let mut summary = summary();
        for (role, counters) in [
            (
                "trg0",
                &[("packets_recorded", 490), ("packets_unrecorded", 7)][..],
            ),
            (
                "trg1",
                &[
                    ("packets_recorded", 0),
                    ("packets_unrecorded", 3),
                    ("packets_truncated", 2),
                ],
            ),
            ("bu0", &[("events_oversized", 4)]),
            ("bu1", &[("events_oversized", 5)]),
            (
                "ru0",
                &[
                    ("fragments_flagged", 6),
                    ("fragments_flagged_of_0x510000", 6),
                    ("fragment_faults_bad_crc", 6),
                ],
            ),
            (
                "src0",
                &[
                    ("refused_late", 301),
                    ("front_end_fragments_absent", 12),
                    ("front_end_silent_of_0x510000", 1),
                    ("front_end_unheard_of_0x520000", 1),
                    ("front_end_frames_late", 2),
                    ("front_end_frames_twice", 0),
                ],
            ),
            ("fu0~1", &[]),
            ("trg2~1", &[]),
            ("fu0", &[("filter.deaths", 2)]),
            ("fu1", &[("filter.deaths", 0)]),
            ("fu2", &[("filter.deaths", 24)]),
        ] {
            let counters = counters.iter();
            let counters = counters.map(|(name, count)| ((*name).to_owned(), *count));
            summary.roles.insert(role.to_owned(), counters.collect());
        }
        summary.packets_uncounted = Some(490);
        summary.histograms_not_summed.push("mass".to_owned());
        summary.filter_menu = Some(FilterMenuSummary {
            over_time: 8,
            ..FilterMenuSummary::default()
        });
        let said = remarks(&summary);
        let starts = [
            "filter units gave histogram mass different bins",
            "died with their counters",
            "deaths of the process of the Python filter: fu0 2, fu2 24;",
            "8 events took longer",
            "no front-end sent anything of source 0x520000",
            "empty fragments, since front-ends did not send theirs within `source.wait`, or had sent their \
             end: 12; their status says so; silent at the end: source 0x510000",
            "frames of front-ends that came too late for their triggers: 2; they are in no event",
            "fragments with faults: 6 (bad_crc 6), by source: 0x510000 6",
            "9 events were larger",
            "2 of 500 trigger packets were longer",
            "10 of 500 trigger packets were not recorded",
            "trg2~1 died with the count of trigger packets that it recorded: of 490, those of about the last",
            "301 of 600 offered triggers were refused as late: the front-ends stood still, or the time of",
        ];
        assert_eq!(said.len(), starts.len(), "{said:#?}");
        for (said, start) in said.iter().zip(starts) {
            assert!(said.starts_with(start), "{said}");
        }
        assert!(
            said[1].ends_with("lack their share: fu0~1, trg2~1"),
            "{}",
            said[1]
        );
    }
}
