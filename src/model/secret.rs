use std::fmt;

/// A value that never prints: `Debug` and `Display` show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself; for the wire and for masking only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Extra request headers. Names compare case-insensitively; `None` removes a header; values of headers whose name
/// looks like a credential print as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Option<String>)>);

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a header, or with `None` marks it as removed.
    pub fn set(&mut self, name: impl Into<String>, value: Option<String>) {
        let name = name.into();
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.0.push((name, value));
    }

    /// Names and values in the order they were set; no value = the header is removed.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// Applies `other` on top of these.
    pub fn merge(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            self.set(name.clone(), value.clone());
        }
    }

    /// Whether a header of this name must never be shown, sent to another host or stored.
    pub fn is_secret_name(name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        ["key", "token", "secret", "authorization", "cookie"].iter().any(|word| name.contains(word))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(name, value)| {
            let value = if Self::is_secret_name(name) { value.as_ref().map(|_| "***") } else { value.as_deref() };
            (name.as_str(), value)
        });
        f.debug_map().entries(shown).finish()
    }
}
