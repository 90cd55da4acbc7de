//! Durations as Go writes them: `100ms`, `1h2m`, `1.5s`, `0`.

use std::time::Duration;

/// The units, longest name first where one is the beginning of another, with their nanoseconds.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration that is not negative.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong(text));
    }
    let mut nanoseconds = 0_u128;
    while !rest.is_empty() {
        let (part, after) = component(rest).ok_or_else(|| wrong(text))?;
        nanoseconds = nanoseconds.checked_add(part).ok_or_else(|| wrong(text))?;
        rest = after;
    }
    // Go's durations are 64-bit, so a longer one is a mistake there too.
    i64::try_from(nanoseconds)
        .map(|nanoseconds| Duration::from_nanos(nanoseconds.unsigned_abs()))
        .map_err(|_| wrong(text))
}

fn wrong(text: &str) -> String {
    format!("{text:?} is not a duration such as 100ms, 5s or 1h30m")
}

/// One number with its unit, in nanoseconds, and what follows it.
fn component(text: &str) -> Option<(u128, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at_checked(number_end)?;
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at_checked(unit_end)?;
    let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    whole.checked_mul(scale)?.checked_add(fraction_of(fraction, scale)?).map(|sum| (sum, after))
}

/// `0.fraction` of `scale`, rounded down.
fn fraction_of(fraction: &str, scale: u128) -> Option<u128> {
    let mut place = scale;
    let mut sum = 0;
    for digit in fraction.chars() {
        place /= 10;
        sum += u128::from(digit.to_digit(10)?) * place;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse(text).ok(), expected.map(Duration::from_millis), "{text:?}");
    }

    #[test]
    fn a_duration_is_read_as_go_reads_it() {
        check("0", Some(0));
        check("0s", Some(0));
        check("100ms", Some(100));
        check("5s", Some(5_000));
        check("+5s", Some(5_000));
        check("1h2m", Some(3_720_000));
        check("1h2m3s4ms", Some(3_723_004));
        check("1.5s", Some(1_500));
        check(".5s", Some(500));
        check("2.s", Some(2_000));
        check("2000us", Some(2));
        check("2000µs", Some(2));
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in ["", "+", "5", "s", ".s", "5x", "5 s", "-5s", "1h2", "1.2.3s", "9999999999999h"] {
            check(text, None);
        }
    }
}
