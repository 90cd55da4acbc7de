//! Where the product can be made to fail, or does wrong on purpose: all of it is nothing without the feature `failpoints`.

/// `failpoint!(Name)`: tests may panic or sleep here. `failpoint!(Name, Err)`: they may also return what the function after
/// the name makes of an error.
#[cfg(feature = "failpoints")]
macro_rules! failpoint {
    ($name:ident) => {
        drop($crate::failpoints::pass($crate::failpoints::Point::$name))
    };
    ($name:ident, $refuse:expr) => {
        if let Some(error) = $crate::failpoints::pass($crate::failpoints::Point::$name) {
            return ($refuse)(error);
        }
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! failpoint {
    ($($what:tt)*) => {};
}

/// `planted!(Name)`: true if this fault, or one of several with `|` between them, was planted in the keyspace at hand.
#[cfg(feature = "failpoints")]
macro_rules! planted {
    ($($name:ident)|+) => {
        ($($crate::failpoints::is_planted($crate::failpoints::Planted::$name))||+)
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! planted {
    ($($name:ident)|+) => {
        false
    };
}

/// `small!(LIMIT, 3)`: the limit, or 3 where tests want everything to be small.
#[cfg(feature = "failpoints")]
macro_rules! small {
    ($limit:expr, $small:expr) => {
        if $crate::failpoints::is_small() { $small } else { $limit }
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! small {
    ($limit:expr, $small:expr) => {
        $limit
    };
}

/// `inherit!(work)`: the work of a new thread, in the scope of the one that starts it.
#[cfg(feature = "failpoints")]
macro_rules! inherit {
    ($work:expr) => {
        $crate::failpoints::inherit($work)
    };
}

#[cfg(not(feature = "failpoints"))]
macro_rules! inherit {
    ($work:expr) => {
        $work
    };
}
