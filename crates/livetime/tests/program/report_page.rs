//! `report.html`: one file that needs no other, with what is needed to trust and repeat the run.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::workbench::{SMALL, Workbench, count, example, value};

/// Where the highest bin of the mass plot has its centre [GeV], read from the outline of its bins
/// and the labels of its axis.
pub(crate) fn mass_peak(page: &str) -> Option<f64> {
    let plot = page
        .split("<svg ")
        .find(|plot| plot.contains("aria-label=\"Dimuon mass"))?;
    let plot = plot.split("</svg>").next()?;
    let labels = plot.split("<text x=\"").skip(1).filter_map(|text| {
        let (x, rest) = text.split_once('"')?;
        let (attributes, label) = rest.split_once('>')?;
        let label = label.split('<').next()?.parse::<f64>().ok()?;
        let below = attributes.contains("text-anchor=\"middle\"");
        below.then_some((x.parse::<f64>().ok()?, label))
    });
    let labels: Vec<(f64, f64)> = labels.collect();
    let ((x0, low), (x1, high)) = (*labels.first()?, *labels.last()?);
    let outline = plot.split("<path d=\"M").nth(1)?.split('"').next()?;
    let corners: Option<Vec<(f64, f64)>> = (outline.trim_end_matches('Z').split('L'))
        .map(|corner| corner.split_once(' '))
        .map(|corner| Some((corner?.0.parse().ok()?, corner?.1.parse().ok()?)))
        .collect();
    // Pages grow downwards; each bin has two corners at its height.
    let bins = corners?;
    let top = bins
        .windows(2)
        .min_by(|a, b| a[0].1.max(a[1].1).total_cmp(&b[0].1.max(b[1].1)))?;
    let centre = (top[0].0 + top[1].0) / 2.0;
    Some(low + (centre - x0) * (high - low) / (x1 - x0))
}

fn assert_offline(page: &str) {
    // The one address in the page names the language of its plots and is never opened.
    let page = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in [
        "http:",
        "https:",
        "src=",
        "href=",
        "url(",
        "@import",
        "<script src",
    ] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn the_report_stands_alone_and_shows_the_stored_peak() {
    let bench = Workbench::new();
    bench.write("my run.toml", example());
    let arguments = [
        "run",
        "my run.toml",
        "--triggers",
        "12000",
        "--lossless",
        "--seed",
        "77",
    ];
    bench.run(&arguments).ended_with(0);
    let page = bench.read("runs/000001/report.html");
    assert_offline(&page);
    for part in [
        "Run 000001",
        "seed 77",
        "livetime run &#39;my run.toml&#39; --triggers 12000 --lossless --seed 77",
        "[[trigger.path]]",
        "DIMUON_OS",
        "Decision latency",
        "Rates over the run",
        "fragments_dropped_by_decision",
        "nothing was lost",
        env!("CARGO_PKG_VERSION"),
    ] {
        let found = page.contains(part) || page.contains(&part.replace("&#39;", "'"));
        assert!(found, "{part} is not on the page");
    }
    let peak = mass_peak(&page).expect("the page has a mass plot");
    assert!((peak - 91.2).abs() <= 2.0, "Z peak at {peak} GeV");

    let again = bench
        .run(&["report", "runs/000001", "-o", "again.html"])
        .ended_with(0);
    assert_eq!(again.out, "again.html\n");
    assert!(
        bench.read("again.html") == page,
        "the page follows from the run's files"
    );
}

#[test]
fn what_nobody_has_measured_is_no_zero() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let none = ["run", "small.toml", "--paused", "--duration", "20ms"];
    let out = bench.run(&none).ended_with(0).out;
    for line in [
        " triggers, 0 Hz Level-2 accepts (-), 0 Hz stored\n",
        "\n  dead time  - of offers refused (0 full buffers, 0 XOFF, 0 late), ",
        "\n  built      0.0 MB/s of payload, - copies per stored byte after the link page\n",
        "\n  decision   none known\n",
        "\n  build      none known\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let page = bench.read("runs/000001/report.html");
    for part in [
        "<div>dead time (offers refused)<b>-</b></div>",
        "<div>decision latency, median<b>-</b></div>",
        "<td>decision</td><td class=\"n\">0</td><td>-</td>",
        "Rates over the run are not drawn: they are means over whole intervals of 1 s, of which the \
         run had 0, ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("aria-label=\"Rates over the run\""));
    let unknown = [
        "dead_time.refused_fraction",
        "copies_per_byte",
        "latency.build.max",
    ];
    assert_null(&summary_of(&bench, "runs/000001"), &unknown);

    let killed = ["run", "small.toml", "--processes"];
    let killed = bench.run(&[&killed[..], &["--fault", "kill:src0@200ms"]].concat());
    let out = killed.ended_with(1).out;
    let line =
        " of offers refused; nobody knows why, nor how long it was busy: that went with src0\n";
    assert!(out.contains(line), "{out}");
    assert!(out.contains("\n  decision   none known\n"), "{out}");
    let summary = summary_of(&bench, "runs/000002");
    let unknown = [
        "dead_time.busy_fraction",
        "latency.decision.p50",
        "latency.decision.over.ppm",
    ];
    assert_null(&summary, &unknown);
    assert_eq!(count(&summary, "latency.decision.count"), 0);
    let refused = value(&summary, "dead_time.refused_fraction");
    assert!(refused.is_number(), "both ends of a hop count: {summary}");
}

fn summary_of(bench: &Workbench, run: &str) -> Value {
    serde_json::from_str(&bench.read(&format!("{run}/summary.json"))).expect("it is JSON")
}

/// What nobody knows has its key in a document, and no figure.
fn assert_null(document: &Value, paths: &[&str]) {
    for path in paths {
        assert!(value(document, path).is_null(), "{path}: {document}");
    }
}

/// Of a run whose drain takes long, since events wait for a link that is down.
#[test]
fn mean_rates_are_of_the_time_in_which_triggers_were_taken() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = ["run", "small.toml", "--duration", "300ms", "--json"];
    let run = bench.run(&[&run[..], &["--fault", "link-down:0@0s+1h"]].concat());
    let run = run.ended_with(0).document();
    let taking = count(&run, "roles.src0.taking_us") as f64 * 1e-6;
    let all = run["run"]["duration_s"].as_f64().expect("a number");
    assert!((0.3..all - 0.5).contains(&taking), "{taking} of {all} s");
    let rate = livetime_wire::RateHz(count(&run, "counts.triggers") as f64 / taking);
    let page = bench.read("runs/000001/report.html");
    let figure = format!("<div>triggers<b>{rate}</b></div>");
    assert!(page.contains(&figure), "{figure}: {page}");
}

#[test]
fn a_note_does_not_end_the_page() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let run = ["run", "small.toml", "--triggers", "100", "--lossless"];
    let note = "<!-- <script></script>";
    bench
        .run(&[&run[..], &["--note", note]].concat())
        .ended_with(0);
    let page = bench.read("runs/000001/report.html");
    let (before, data) = page.split_once("id=\"summary\">").expect("it has its data");
    assert!(!before.contains("<!--"));
    let (data, rest) = data.split_once('<').expect("its element ends");
    assert_eq!(rest, "/script>\n</body></html>\n");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["notes"][0]["text"], note);
}

#[test]
fn a_report_replaces_a_page_and_nothing_else() {
    let bench = Workbench::new();
    bench.write("run.toml", SMALL);
    let arguments = ["run", "run.toml", "--triggers", "200", "--lossless"];
    bench.run(&arguments).ended_with(0);
    bench.run(&["report", "runs/000001"]).ended_with(0);
    let run = bench.path("runs/000001");
    let files = ["events.mcap", "summary.json", "lock"].map(|name| run.join(name));
    let contents = || files.each_ref().map(|file| fs::read(file).ok());
    let before = contents();
    for (file, there) in files.iter().zip(["a file of a run", "a file", "a file"]) {
        let file = file.to_str().expect("a plain name");
        let begin = format!("error: cannot write {file}: {there} is there");
        for verb in [
            ["report", "runs/000001", "-o"],
            ["source", "run.toml", "--jsonl"],
        ] {
            let refused = bench.run(&[&verb[..], &[file]].concat()).ended_with(1);
            assert!(refused.err.starts_with(&begin), "{verb:?}: {}", refused.err);
            assert!(refused.err.contains("help: the file is kept; name one"));
            assert_eq!(refused.out, "");
        }
    }
    assert!(contents() == before, "nothing was written");
    let page = ["source", "run.toml", "--jsonl", "runs/000001/report.html"];
    let refused = bench.run(&page).ended_with(1);
    assert!(
        refused.err.contains(": a page or a drawing is there"),
        "{}",
        refused.err
    );
}

#[test]
fn a_folder_without_a_run_gives_no_report() {
    let bench = Workbench::new();
    let report = bench.run(&["report", "."]).ended_with(1);
    assert!(
        report.err.contains("cannot read ./summary.json"),
        "{}",
        report.err
    );
    bench.write("summary.json", "{\"schema\":\"livetime.run/1\"}");
    let report = bench.run(&["report", "."]).ended_with(1);
    assert!(report.err.contains("is no run summary"), "{}", report.err);
    assert!(!Path::new(&bench.path("report.html")).exists());
}

/// As by a rotation of logs, while the run goes on.
#[test]
fn a_run_whose_file_was_cut_off_meanwhile_is_no_good_run() {
    let bench = Workbench::new();
    bench.write("small.toml", SMALL);
    let mut running = bench.start(&["run", "small.toml", "--out", "out"]);
    let file = bench.path("out/events.mcap");
    running.wait_for_bytes(&file, 200_000);
    let cut = fs::File::options().write(true).open(&file);
    cut.and_then(|file| file.set_len(0)).expect("it is ours");
    running.signal(rustix::process::Signal::INT);
    let run = running.finish().ended_with(1);
    let said = "error: out: the run files here hold ";
    assert!(run.err.contains(said), "{}", run.err);
    assert!(run.err.contains("; `livetime inspect out` says where"));
}
