//! Reads a histogram back from the SVG of a report, as a person would: the tick labels give the
//! scale of the axis, the outline gives the bins.
//!
//! It shares no code with the writer of plots and needs a linear horizontal axis. Only positions
//! of bins are read, not their contents.

/// Where the highest bin of the first plot whose title contains `title` has its centre, in the
/// unit of the horizontal axis.
pub(super) fn highest_bin(page: &str, title: &str) -> Option<f64> {
    let plot = page.split("<svg ").skip(1).find(|plot| {
        attribute(plot, "aria-label").is_some_and(|label| label.to_lowercase().contains(title))
    })?;
    let plot = plot.split("</svg>").next()?;
    let ticks = ticks(plot);
    let ((first_at, first), (last_at, last)) = (*ticks.first()?, *ticks.last()?);
    let outline = outline(plot)?;
    // The page grows downwards: the highest bin is the smallest y. Its two corners follow each
    // other.
    let top = (1..outline.len().checked_sub(1)?)
        .min_by(|a, b| outline[*a].1.total_cmp(&outline[*b].1))?;
    let centre = (outline[top].0 + outline[top + 1].0) / 2.0;
    let value = first + (centre - first_at) * (last - first) / (last_at - first_at);
    value.is_finite().then_some(value)
}

/// Positions and values of the labels below the horizontal axis.
fn ticks(plot: &str) -> Vec<(f64, f64)> {
    let mut ticks = Vec::new();
    for text in plot.split("<text ").skip(1) {
        let Some((attributes, rest)) = text.split_once('>') else {
            continue;
        };
        let label = rest.split('<').next().and_then(|label| label.parse().ok());
        let position = attribute(attributes, "x").and_then(|at| at.parse().ok());
        if let (Some(at), Some(value)) = (position, label)
            && attribute(attributes, "text-anchor") == Some("middle")
        {
            ticks.push((at, value));
        }
    }
    ticks
}

/// The corners of the first filled outline.
fn outline(plot: &str) -> Option<Vec<(f64, f64)>> {
    let path = plot
        .split("<path ")
        .skip(1)
        .find_map(|path| attribute(path, "d"))?;
    let corners = path.trim_end_matches('Z').split(['M', 'L']).skip(1);
    corners
        .map(|corner| {
            let (x, y) = corner.trim().split_once(' ')?;
            Some((x.parse().ok()?, y.trim().parse().ok()?))
        })
        .collect()
}

/// The value of an attribute of the element that `text` starts in.
fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let element = text.split('>').next()?;
    let (before, after) = element.split_once(&format!("{name}=\""))?;
    let whole_name = before.is_empty() || before.ends_with(' ');
    if whole_name {
        after.split('"').next()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plot from 60 to 120 on positions 100 to 700 with bins of 10.
    fn page(heights: &[f64]) -> String {
        let mut path = "M100.0 400.0".to_owned();
        for (bin, height) in heights.iter().enumerate() {
            let (left, y) = (100.0 + 100.0 * bin as f64, 400.0 - height);
            path += &format!("L{left:.1} {y:.1}L{:.1} {y:.1}", left + 100.0);
        }
        path += "L700.0 400.0Z";
        format!(
            "<svg viewBox=\"0 0 1 1\" aria-label=\"other\"></svg>\
             <svg viewBox=\"0 0 1 1\" aria-label=\"Dimuon mass\">\
             <text x=\"9\" y=\"22\" font-size=\"15\">Dimuon mass</text>\
             <text x=\"100.0\" y=\"418.0\" text-anchor=\"middle\">60</text>\
             <text x=\"500.0\" y=\"418.0\" text-anchor=\"middle\">100</text>\
             <text x=\"90.0\" y=\"7.0\" text-anchor=\"end\">1000</text>\
             <text transform=\"rotate(-90)\" text-anchor=\"middle\">events</text>\
             <path d=\"{path}\" fill=\"blue\"/></svg>"
        )
    }

    #[test]
    fn the_highest_bin_is_read_in_the_unit_of_the_axis() {
        assert_eq!(
            highest_bin(&page(&[1.0, 5.0, 7.0, 30.0, 2.0, 0.0]), "mass"),
            Some(95.0)
        );
        assert_eq!(
            highest_bin(&page(&[9.0, 5.0, 7.0, 3.0, 2.0, 0.0]), "mass"),
            Some(65.0)
        );
        assert_eq!(
            highest_bin(&page(&[1.0, 5.0, 7.0, 3.0, 2.0, 8.0]), "mass"),
            Some(115.0)
        );
    }

    #[test]
    fn a_page_without_the_plot_gives_nothing() {
        assert_eq!(highest_bin("<html></html>", "mass"), None);
        assert_eq!(highest_bin(&page(&[1.0, 2.0]), "latency"), None);
        assert_eq!(
            highest_bin("<svg aria-label=\"mass\"><path d=\"M\"/></svg>", "mass"),
            None
        );
    }
}
