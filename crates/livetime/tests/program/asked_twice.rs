//! Fragments that are asked for again while they are on their way: every page comes back to its link.

use crate::workbench::{Workbench, assert_conserved, changed, count, lost_in_all};

/// Requests are repeated long before a turn of the shifter comes, and there are few pages.
const IMPATIENT: &str = r#"
format = 1

[[source]]

[source.fragment]
bytes_mean = "600 B"
bytes_max = "2 KiB"

[[link]]
to = "trg0"
source_id = 0x700000

@LINKS@
[[trigger.path]]
name = "ALL"
bit = 0
l1 = [0]
cut = "auto"

[filter]
name = "accept_all"

[builder]
credits = 1
evm_queue = 1
timeout = "20 s"
transport = "tcp"
shaping = "barrel-shifter"
block = "256 B"
pace = "clock"
step = "50 us"
retry = "100 us"
"#;

/// The two data links of a readout unit.
fn links(unit: &str, source_id: u32) -> String {
    format!(
        r#"
[[link]]
to = "{unit}"
source_id = {source_id}
count = 2
page = "256 B"
pages = 40
request_depth = 1
acknowledge_depth = 2
words_in_flight = 0
xoff_below = 1
xon_above = 1
"#
    )
}

#[test]
fn pages_of_fragments_that_are_sent_twice_come_back() {
    for kind in ["tcp", "udp"] {
        let bench = Workbench::new();
        let transport = format!("transport = \"{kind}\"");
        let both = links("ru0", 0x51_0000) + &links("ru1", 0x52_0000);
        let config = changed(IMPATIENT, "transport = \"tcp\"", &transport);
        let config = changed(&config, "@LINKS@", &both);
        bench.write("impatient.toml", config);
        let arguments = [
            "run",
            "impatient.toml",
            "--json",
            "--lossless",
            "--triggers",
            "400",
        ];
        let run = bench.run(&arguments).ended_with(0).document();
        assert_conserved(&run);
        assert_eq!(lost_in_all(&run), 0);
        assert_eq!(count(&run, "counts.events_stored"), 400);
        assert_eq!(count(&run, "roles.src0.foreign_page_numbers"), 0);
        let again =
            ["ru0", "ru1"].map(|unit| count(&run, &format!("roles.{unit}.fragments_sent_again")));
        assert!(again.iter().sum::<u64>() > 0, "{again:?}");
    }
}
