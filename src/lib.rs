#![doc = include_str!("ARCHITECTURE.md")]

pub mod agent;
pub mod app;
pub mod cli;
pub mod config;
pub mod exit;
pub mod harness;
pub mod model;
pub mod port;
pub mod print;
pub mod process;
pub mod provider;
pub mod session;
#[cfg(feature = "test-support")]
pub mod testing;
pub mod tool;
pub mod turn;
