//! The run report: one HTML file that opens from disk, without any other file, in ten years.
//!
//! It is a pure function of what it is given; reading run directories is the program's business.
//! All plots are inline SVG, the data of the page is embedded as JSON, and nothing is loaded from
//! anywhere.

use std::fmt::Write;

use crate::plot::escape;

/// A table with a caption.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it lists.
    pub caption: String,
    /// Column headings.
    pub headings: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
    /// What the rows say, in words, a paragraph each; printed after them.
    pub conclusion: Vec<String>,
}

/// A plot with what a reader needs to trust it.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The SVG element.
    pub svg: String,
    /// What it shows, from which data, and what it does not show.
    pub caption: String,
}

/// Everything that is on a report page.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Title, for example `Run 000042`.
    pub title: String,
    /// One line under the title: condition, date, version.
    pub subtitle: String,
    /// The sentence that says whether everything is accounted for.
    pub verdict: String,
    /// Whether the verdict is good news.
    pub verdict_good: bool,
    /// Key figures: name and value with unit.
    pub figures_of_merit: Vec<(String, String)>,
    /// The plots.
    pub figures: Vec<Figure>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The command that reproduces the run.
    pub command: String,
    /// The configuration as it was used; empty where there is none.
    pub config: String,
    /// The run's summary document, embedded for programs; empty where there is none.
    pub summary_json: String,
}

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;\
color:#222}h1{margin-bottom:0}.sub{color:#666}.verdict{padding:.6em 1em;border-left:6px solid;\
margin:1em 0;font-weight:bold}.good{border-color:#5790fc;background:#eef4ff}.bad{border-color:\
#e42536;background:#ffeef0}.key{display:flex;flex-wrap:wrap;gap:.6em}.key div{border:1px solid #ddd;\
padding:.5em .9em;border-radius:4px}.key b{display:block;font-size:1.25em}figure{margin:1.5em 0}\
figcaption{color:#555}svg{width:100%;height:auto;max-width:820px;border:1px solid #eee}table{\
border-collapse:collapse;margin:1em 0}caption{text-align:left;font-weight:bold;padding:.3em 0}\
td,th{border-bottom:1px solid #ddd;padding:.2em .8em .2em 0;text-align:left}td.n{text-align:right;\
font-variant-numeric:tabular-nums}.says{border-left:4px solid #5790fc;\
padding-left:.8em}pre{background:#f7f7f7;padding:1em;overflow:auto}\
@media print{body{margin:0}}";

impl Report {
    /// The page as HTML text.
    pub fn to_html(&self) -> String {
        let mut out = String::new();
        let title = escape(&self.title);
        let verdict_class = if self.verdict_good { "good" } else { "bad" };
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1>\
             <p class=\"sub\">{}</p><p class=\"verdict {verdict_class}\">{}</p>\n",
            escape(&self.subtitle),
            escape(&self.verdict)
        );
        out.push_str("<div class=\"key\">");
        for (name, value) in &self.figures_of_merit {
            let _ = write!(out, "<div>{}<b>{}</b></div>", escape(name), escape(value));
        }
        out.push_str("</div>\n");
        for figure in &self.figures {
            let caption = escape(&figure.caption);
            let svg = &figure.svg;
            let _ = writeln!(
                out,
                "<figure>{svg}<figcaption>{caption}<br>Reproduce: <code>{}</code></figcaption></figure>",
                escape(&self.command)
            );
        }
        for table in &self.tables {
            write_table(&mut out, table);
        }
        if !self.config.is_empty() {
            let config = escape(&self.config);
            let _ = writeln!(out, "<h2>Configuration</h2><pre>{config}</pre>");
        }
        if !self.summary_json.is_empty() {
            let _ = writeln!(
                out,
                "<script type=\"application/json\" id=\"summary\">{}</script>",
                // Neither `</script` nor `<!--` of a note may reach the script element. JSON has `<` in
                // texts alone.
                self.summary_json.replace('<', "\\u003c")
            );
        }
        out.push_str("</body></html>\n");
        out
    }
}

fn write_table(out: &mut String, table: &Table) {
    let _ = write!(
        out,
        "<table><caption>{}</caption><tr>",
        escape(&table.caption)
    );
    for heading in &table.headings {
        let _ = write!(out, "<th>{}</th>", escape(heading));
    }
    out.push_str("</tr>");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            let numeric = cell.starts_with(|c: char| c.is_ascii_digit());
            let class = if numeric { " class=\"n\"" } else { "" };
            let _ = write!(out, "<td{class}>{}</td>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>\n");
    for paragraph in &table.conclusion {
        let _ = writeln!(out, "<p class=\"says\">{}</p>", escape(paragraph));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_whole_escaped_and_loads_nothing() {
        let report = Report {
            title: "Run 000001".to_owned(),
            verdict: "every fragment is accounted for".to_owned(),
            verdict_good: true,
            figures_of_merit: vec![("rate <x>".to_owned(), "10 kHz".to_owned())],
            figures: vec![Figure {
                svg: "<svg></svg>".to_owned(),
                caption: "a & b".to_owned(),
            }],
            tables: vec![Table {
                caption: "counts".to_owned(),
                headings: vec!["name".to_owned(), "count".to_owned()],
                rows: vec![vec!["offered".to_owned(), "12".to_owned()]],
                conclusion: vec!["12 < 13".to_owned()],
            }],
            command: "livetime run x.toml".to_owned(),
            config: "a = \"</pre>\"".to_owned(),
            summary_json: "{\"x\":\"</script><!-- <script>\"}".to_owned(),
            ..Report::default()
        };
        let html = report.to_html();
        assert!(html.ends_with("</html>\n"));
        assert!(html.contains("rate &lt;x&gt;") && html.contains("a &amp; b"));
        assert!(html.contains("&lt;/pre&gt;"));
        assert!(html.contains("\"\\u003c/script>\\u003c!-- \\u003cscript>\""));
        assert_eq!(html.matches("<!--").count(), 0);
        assert!(html.contains("<td class=\"n\">12</td>"));
        assert!(html.contains("</table>\n<p class=\"says\">12 &lt; 13</p>"));
        let bare = Report::default().to_html();
        assert!(bare.ends_with("</body></html>\n"));
        for part in ["<h2>Configuration</h2>", "<script"] {
            assert_eq!(
                (html.matches(part).count(), bare.matches(part).count()),
                (1, 0)
            );
        }
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
