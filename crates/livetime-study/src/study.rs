//! Studies: the tables and figures of the papers, measured or simulated anew.
//!
//! Each study is a file of `study/` and gives a JSON document and a page with the paper's values
//! beside ours. Benches, which have targets, are in [`crate::bench`].

pub mod cms;
pub mod filar;
pub mod level3;
pub mod pulsar;
mod row;
pub mod saft;
