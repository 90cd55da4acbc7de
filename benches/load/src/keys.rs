//! Keys and values: the same for every run, so that runs can follow each other.

/// What all keys begin with.
pub(crate) const PREFIX: &str = "/registry/load/";

/// The first key behind all of them.
pub(crate) fn end() -> Vec<u8> {
    b"/registry/load0".to_vec()
}

/// The key with a number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("{PREFIX}{number:010}").into_bytes()
}

/// A value that does not compress.
pub(crate) fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes + 8);
    let mut state = number;
    while value.len() < bytes {
        state = mix(state.wrapping_add(1));
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The `number`th of `keys` keys in an order without neighbours; each comes once before one comes twice.
pub(crate) fn scattered(number: u64, keys: u64) -> u64 {
    // A prime above any number of keys used here has no common divisor with it.
    const STRIDE: u64 = 2_147_483_647;
    (number % keys * (STRIDE % keys)) % keys
}

/// A number that looks random.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
