//! Figures as SVG: lines over an axis that may be logarithmic.

use std::fmt::Write as _;

/// The contents of a figure.
pub(super) struct Figure<'f> {
    pub(super) title: &'f str,
    pub(super) x: &'f str,
    pub(super) y: &'f str,
    /// Both axes by powers of ten.
    pub(super) logarithmic: bool,
    pub(super) lines: Vec<(String, Vec<(f64, f64)>)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 48.0;

const COLOURS: [&str; 8] = [
    "#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#b8860b", "#2a9d8f", "#555555", "#d1495b",
];

/// Marks on an axis, about so many.
const TICKS: f64 = 5.0;

/// From the least to the greatest, and where marks are.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, logarithmic: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if logarithmic {
            low = 10_f64.powf(low.max(1e-6).log10().floor());
            high = 10_f64.powf(high.max(1e-5).log10().ceil()).max(low * 10.0);
        } else {
            low = 0.0;
            high = high.max(f64::MIN_POSITIVE) * 1.05;
        }
        Self {
            low,
            high,
            logarithmic,
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        if self.logarithmic {
            let log = |value: f64| value.max(self.low).log10();
            (log(value) - log(self.low)) / (log(self.high) - log(self.low))
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let mut ticks = vec![self.low];
            while ticks[ticks.len() - 1] * 9.99 < self.high {
                ticks.push(ticks[ticks.len() - 1] * 10.0);
            }
            return ticks;
        }
        let rough = self.high / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let count = (self.high / step) as usize;
        (0..=count).map(|tick| tick as f64 * step).collect()
    }
}

/// The figure's file.
pub(super) fn svg(figure: &Figure<'_>) -> String {
    let points = || figure.lines.iter().flat_map(|(_, points)| points.iter());
    let x = Axis::of(points().map(|point| point.0), figure.logarithmic);
    let y = Axis::of(points().map(|point| point.1), figure.logarithmic);
    let across = |value| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
    let up = |value| HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    text(&mut svg, (LEFT, 20.0), "start", figure.title);
    text(
        &mut svg,
        ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 10.0),
        "middle",
        figure.x,
    );
    text(&mut svg, (6.0, TOP - 2.0), "start", figure.y);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in x.ticks() {
        let at = across(tick);
        line(&mut svg, (at, TOP), (at, bottom), "#dddddd");
        text(&mut svg, (at, bottom + 16.0), "middle", &short(tick));
    }
    for tick in y.ticks() {
        let at = up(tick);
        line(&mut svg, (LEFT, at), (right, at), "#dddddd");
        text(&mut svg, (LEFT - 6.0, at + 4.0), "end", &short(tick));
    }
    for (number, (name, points)) in figure.lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        let at = TOP + 16.0 * number as f64 + 8.0;
        line(
            &mut svg,
            (right + 8.0, at - 4.0),
            (right + 24.0, at - 4.0),
            colour,
        );
        text(&mut svg, (right + 28.0, at), "start", name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 {
        format!("{value:.0e}")
    } else {
        format!("{}", (value * 100.0).round() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside() {
        for logarithmic in [false, true] {
            let figure = Figure {
                title: "a < b",
                x: "x",
                y: "y",
                logarithmic,
                lines: vec![("one".to_owned(), vec![(1.0, 3.0), (1000.0, 0.5)])],
            };
            let svg = svg(&figure);
            assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
            let points = svg
                .split("points=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            for point in points.split(' ') {
                let (x, y) = point.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((LEFT..=WIDTH - RIGHT + 0.1).contains(&x), "{x}");
                assert!((TOP - 0.1..=HEIGHT - BOTTOM + 0.1).contains(&y), "{y}");
            }
        }
    }
}
