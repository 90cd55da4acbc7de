//! Certificates made on the spot, and what comes of them.
