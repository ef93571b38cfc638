#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod arguments;
mod tool_ls;
mod tool_read;
mod tool_support;
