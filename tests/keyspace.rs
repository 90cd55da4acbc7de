//! The keyspace as a library, held against the model.

mod model;
