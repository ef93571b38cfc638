mod catalogue;
mod config;
