//! placeholder: dialect switches of OpenAI-compatible servers
