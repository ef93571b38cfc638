//! placeholder: coercion and validation of tool arguments
