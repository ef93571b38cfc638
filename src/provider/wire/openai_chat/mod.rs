//! OpenAI Chat Completions and the many servers that speak it.

pub mod encode;
