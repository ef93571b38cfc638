mod clean;
mod spill;
mod view;
