//! What is wanted of a row, and whether it is met.

/// One wish about one figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The name of the figure, Sternpost's.
    pub(crate) figure: &'static str,
    pub(crate) bound: Bound,
}

/// What the figure is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// At least so many times etcd's.
    AtLeast(f64),
    /// At most so many times etcd's.
    AtMost(f64),
    /// At least so many times etcd's requests for a second of the server's CPU: its rate, were the client not on the same cores.
    ByCpu(f64),
    /// At most so much.
    Below(f64),
    /// At most so much more than the floor's.
    AboveFloor(f64),
    /// At most so many times the sum of the floor's and the disk's.
    OfFloorAndDisk(f64),
    /// At most so many times another figure of Sternpost's.
    AtMostOf(f64, &'static str),
    /// At least so many times another figure of Sternpost's.
    AtLeastOf(f64, &'static str),
}

/// Short for a goal.
pub(crate) const fn goal(figure: &'static str, bound: Bound) -> Goal {
    Goal { figure, bound }
}

impl Goal {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let figure = self.figure;
        match self.bound {
            Bound::AtLeast(times) => format!("{figure} ≥ {times} × etcd"),
            Bound::AtMost(times) => format!("{figure} ≤ {times} × etcd"),
            Bound::ByCpu(times) => format!("rate by CPU ≥ {times} × etcd"),
            Bound::Below(most) => format!("{figure} ≤ {most}"),
            Bound::AboveFloor(most) => format!("{figure} ≤ floor + {most}"),
            Bound::OfFloorAndDisk(times) => format!("{figure} ≤ {times} × (floor + disk)"),
            Bound::AtMostOf(times, other) => format!("{figure} ≤ {times} × {other}"),
            Bound::AtLeastOf(times, other) => format!("{figure} ≥ {times} × {other}"),
        }
    }

    /// What was measured, as the goal puts it, and whether that meets it; nothing if a figure is missing. `figure` gives the median of a
    /// server's figure.
    pub(crate) fn measured(&self, figure: impl Fn(&str, &str) -> Option<f64>) -> Option<(f64, bool)> {
        let ours = figure("sternpost", self.figure)?;
        let of = |server: &str| figure(server, self.figure);
        Some(match self.bound {
            Bound::AtLeast(times) => (ours / of("etcd")?, ours >= times * of("etcd")?),
            Bound::AtMost(times) => (ours / of("etcd")?, ours <= times * of("etcd")?),
            Bound::ByCpu(times) => (of("etcd")? / ours, of("etcd")? >= times * ours),
            Bound::Below(most) => (ours, ours <= most),
            Bound::AboveFloor(most) => (ours - of("floor")?, ours - of("floor")? <= most),
            Bound::OfFloorAndDisk(times) => {
                let sum = of("floor")? + of("disk")?;
                (ours / sum, ours <= times * sum)
            }
            Bound::AtMostOf(times, other) => {
                let other = figure("sternpost", other)?;
                (ours / other, ours <= times * other)
            }
            Bound::AtLeastOf(times, other) => {
                let other = figure("sternpost", other)?;
                (ours / other, ours >= times * other)
            }
        })
    }
}
