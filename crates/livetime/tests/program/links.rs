//! Test patterns over every kind of link, and configurations of many links.

use crate::workbench::{Workbench, count};

#[test]
fn a_million_words_of_a_pattern_come_over_each_link_without_an_error() {
    let bench = Workbench::new();
    for (link, pattern) in [
        ("slink", "random"),
        ("cards", "8"),
        ("udp", "1"),
        ("tcp", "2"),
        ("file", "4"),
    ] {
        // 4000 blocks of 250 words; those of 1500 take several datagrams each.
        for (blocks, words) in [("4000", "250"), ("300", "1500")] {
            let options = ["--link", link, "--blocks", blocks, "--words", words];
            let run = bench.run(&[&["source", "--pattern", pattern][..], &options].concat());
            let document = run.ended_with(0).document();
            assert_eq!(document["link"], link);
            let all: u64 = blocks.parse::<u64>().unwrap() * words.parse::<u64>().unwrap();
            for key in ["words_made", "data_words_received", "words_checked"] {
                assert_eq!(count(&document, key), all, "{link} {key}");
            }
            assert_eq!(
                count(&document, "words_bad") + count(&document, "blocks_lost"),
                0
            );
        }
        // The checker sees what is wrong, whatever the link.
        let options = ["--link", link, "--blocks", "200", "--error-rate", "0.1"];
        let run = bench.run(&[&["source", "--pattern", pattern][..], &options].concat());
        let document = run.ended_with(1).document();
        let injected = count(&document, "errors_injected");
        assert!(injected > 0);
        assert_eq!(count(&document, "blocks_bad"), injected, "{link}");
    }
}

/// Blocks of more datagrams than are taken between two of them: what the socket does not hold is lost.
#[test]
fn every_block_of_a_pattern_over_datagrams_is_checked_or_lost() {
    let bench = Workbench::new();
    let options = ["--link", "udp", "--blocks", "50", "--words", "100000"];
    let run = bench.run(&[&["source", "--pattern", "1"][..], &options].concat());
    let document = run.document();
    let lost = count(&document, "blocks_lost");
    assert_eq!(count(&document, "blocks_made"), 50);
    assert_eq!(count(&document, "blocks_checked") + lost, 50, "{document}");
    assert_eq!(count(&document, "blocks_bad"), 0, "{document}");
    run.ended_with(i32::from(lost > 0));
}

#[test]
fn a_configuration_of_1650_links_is_written_and_good() {
    let bench = Workbench::new();
    let check = bench.run(&["check", "links.toml", "--generate", "1650"]);
    let text = check.ended_with(0).out;
    assert!(text.starts_with("links.toml: good\n"), "{text}");
    assert!(text.contains("1 trigger, 1650 data"), "{text}");
    assert!(text.contains("  checked  in "), "{text}");
    assert_eq!(bench.read("links.toml").matches("[[link]]").count(), 1651);
    // It is a configuration like any other, and is not written over.
    bench.run(&["check", "links.toml"]).ended_with(0);
    let again = bench
        .run(&["check", "links.toml", "--generate", "2"])
        .ended_with(1);
    assert!(
        again.err.contains("cannot make links.toml"),
        "{}",
        again.err
    );
    bench
        .run(&["check", "none.toml", "--generate", "0"])
        .ended_with(2);
}
