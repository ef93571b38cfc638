//! Which proxy a request takes (HTTP-10).
//!
//! Keeps true: a proxy of the provider's own configuration is always used; proxies of the environment never see a
//! loopback address nor a host that `NO_PROXY` names; no text shows a proxy's password.
//!
//! Must not know: the environment; `config` read it.

use std::net::IpAddr;

use reqwest::Url;

use crate::model::{ErrorKind, ErrorRecord, Secret};
use crate::provider::error::Via;
use crate::provider::url::host_and_port;

/// Proxies as configured. Values are URLs, `host:port` meaning `http://`; they may hold user and password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// `providers.X.proxy`: for every request, loopback included.
    pub forced: Option<Secret>,
    /// `HTTPS_PROXY`.
    pub https: Option<Secret>,
    /// `HTTP_PROXY`; the reader leaves it out where `REQUEST_METHOD` is set.
    pub http: Option<Secret>,
    /// `ALL_PROXY`, also for `socks5://` and `socks5h://`.
    pub all: Option<Secret>,
    /// `NO_PROXY`: `*`, hosts, `.suffix`, `*.suffix`, `host:port`, addresses, CIDR; comma separated.
    pub no_proxy: Option<String>,
}

/// The settings, checked.
#[derive(Clone)]
pub(super) struct ProxyRules {
    forced: Option<Chosen>,
    https: Option<Chosen>,
    http: Option<Chosen>,
    no_proxy: Vec<Exception>,
}

/// A proxy and the setting it comes from.
#[derive(Clone)]
pub(super) struct Chosen {
    pub(super) url: Url,
    pub(super) setting: &'static str,
}

impl Chosen {
    /// What errors tell of it, for a request to `target`.
    pub(super) fn via(&self, target: &Url) -> Via {
        let relays = target.scheme() == "http" && matches!(self.url.scheme(), "http" | "https");
        Via { address: host_and_port(self.url.as_str()), setting: self.setting.to_owned(), relays }
    }
}

impl ProxyRules {
    /// The error names the setting that is no proxy URL.
    pub(super) fn new(settings: &ProxySettings) -> Result<Self, ErrorRecord> {
        let all = parse("ALL_PROXY", settings.all.as_ref())?;
        Ok(Self {
            forced: parse("the provider's `proxy`", settings.forced.as_ref())?,
            https: parse("HTTPS_PROXY", settings.https.as_ref())?.or_else(|| all.clone()),
            http: parse("HTTP_PROXY", settings.http.as_ref())?.or(all),
            no_proxy: settings
                .no_proxy
                .as_deref()
                .unwrap_or("")
                .split([',', ' '])
                .filter_map(Exception::parse)
                .collect(),
        })
    }

    /// The proxy for a target, or `None` for a direct connection.
    pub(super) fn proxy_for(&self, target: &Url) -> Option<&Chosen> {
        if self.forced.is_some() {
            return self.forced.as_ref();
        }
        let host = host(target);
        let direct = is_loopback(target)
            || self.no_proxy.iter().any(|exception| exception.covers(&host, target.port_or_known_default()));
        match target.scheme() {
            _ if direct => None,
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }
    }
}

fn parse(name: &'static str, value: Option<&Secret>) -> Result<Option<Chosen>, ErrorRecord> {
    let Some(text) = value.map(|secret| secret.expose().trim()).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let schemes = ["http", "https", "socks5", "socks5h", "socks4", "socks4a"];
    match Url::parse(&with_scheme) {
        Ok(url) if schemes.contains(&url.scheme()) && url.host_str().is_some_and(|host| !host.is_empty()) => {
            Ok(Some(Chosen { url, setting: name }))
        }
        _ => {
            let error = ErrorRecord::new(ErrorKind::Config, format!("{name} is not the address of a proxy"));
            Err(error.with_hint("write it like http://proxy.example:3128 or socks5h://proxy.example:1080"))
        }
    }
}

/// The host of a URL in lower case, an IPv6 address without its brackets.
fn host(url: &Url) -> String {
    url.host_str().unwrap_or("").trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// Whether a URL leads to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = host(url);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    /// The name itself (unless only names below it count) and all names below it.
    Domain {
        name: String,
        below_only: bool,
        port: Option<u16>,
    },
    Net {
        address: IpAddr,
        prefix: u8,
        port: Option<u16>,
    },
}

impl Exception {
    /// An entry that means nothing covers nothing.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Self::All);
        }
        if let Some(net) = Self::net(&text, None) {
            return Some(net);
        }
        let (text, port) = match text.rsplit_once(':') {
            Some((text, port)) => (text, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        if let Some(net) = Self::net(text.trim_matches(['[', ']']), port) {
            return Some(net);
        }
        let below_only = text.starts_with("*.");
        let name = text.trim_start_matches('*').trim_matches('.').to_owned();
        (!name.is_empty()).then_some(Self::Domain { name, below_only, port })
    }

    fn net(text: &str, port: Option<u16>) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        (prefix <= bits).then_some(Self::Net { address, prefix, port })
    }

    fn covers(&self, host: &str, target_port: Option<u16>) -> bool {
        let port_fits = |port: &Option<u16>| port.is_none() || *port == target_port;
        match self {
            Self::All => true,
            Self::Domain { name, below_only, port } => {
                let below = host.strip_suffix(name.as_str()).is_some_and(|head| head.ends_with('.'));
                port_fits(port) && (below || (!below_only && host == name))
            }
            Self::Net { address, prefix, port } => {
                let inside = host.parse().is_ok_and(|host| same_net(*address, host, *prefix));
                port_fits(port) && inside
            }
        }
    }
}

fn same_net(net: IpAddr, host: IpAddr, prefix: u8) -> bool {
    let (net, host, bits) = match (net, host.to_canonical()) {
        (IpAddr::V4(net), IpAddr::V4(host)) => (u128::from(net.to_bits()), u128::from(host.to_bits()), 32_u8),
        (IpAddr::V6(net), IpAddr::V6(host)) => (net.to_bits(), host.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    // A shift by the whole width would be one too many: prefix 0 covers everything.
    let shift = u32::from(bits.saturating_sub(prefix));
    net.checked_shr(shift) == host.checked_shr(shift)
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{ProxyRules, ProxySettings, is_loopback};
    use crate::model::Secret;

    fn chosen(settings: &ProxySettings, target: &str) -> Option<String> {
        let rules = ProxyRules::new(settings).unwrap();
        rules.proxy_for(&Url::parse(target).unwrap()).map(|chosen| chosen.url.to_string())
    }

    #[test]
    fn each_form_of_no_proxy_covers_what_it_names() {
        let table = [
            ("*", "https://api.example.com/", true),
            ("api.example.com", "https://api.example.com/", true),
            ("API.example.com", "https://api.Example.com/", true),
            ("example.com", "https://api.example.com/", true),
            ("example.com", "https://badexample.com/", false),
            (".example.com", "https://api.example.com/", true),
            (".example.com", "https://example.com/", true),
            ("*.example.com", "https://api.example.com/", true),
            ("*.example.com", "https://example.com/", false),
            ("example.com:8443", "https://example.com:8443/", true),
            ("example.com:8443", "https://example.com/", false),
            ("example.com:443", "https://example.com/", true),
            ("10.1.2.3", "http://10.1.2.3/", true),
            ("10.1.2.3:81", "http://10.1.2.3/", false),
            ("10.0.0.0/8", "http://10.250.0.1/", true),
            ("10.0.0.0/8", "http://11.0.0.1/", false),
            ("0.0.0.0/0", "http://11.0.0.1/", true),
            ("10.0.0.0/40", "http://10.0.0.0/", false),
            ("fe80::/10", "http://[fe80::1]/", true),
            ("fd00::1", "http://[fd00::1]:8080/", true),
            ("[fd00::1]:8080", "http://[fd00::1]:8080/", true),
            ("a.test, example.com ,b.test", "https://example.com/", true),
            ("", "https://example.com/", false),
        ];
        for (no_proxy, target, direct) in table {
            let all = Some(Secret::new("proxy.test:3128"));
            let settings = ProxySettings { all, no_proxy: Some(no_proxy.to_owned()), ..ProxySettings::default() };
            assert_eq!(chosen(&settings, target).is_none(), direct, "NO_PROXY={no_proxy} {target}");
        }
    }

    #[test]
    fn the_scheme_chooses_the_variable_and_all_fills_in() {
        let settings = ProxySettings {
            https: Some(Secret::new("http://s.test:1")),
            all: Some(Secret::new("socks5h://a.test:2")),
            ..ProxySettings::default()
        };
        assert_eq!(chosen(&settings, "https://x.test/").as_deref(), Some("http://s.test:1/"));
        assert_eq!(chosen(&settings, "http://x.test/").as_deref(), Some("socks5h://a.test:2"));
    }

    #[test]
    fn loopback_takes_only_a_forced_proxy() {
        let all = Some(Secret::new("http://a.test:1"));
        let forced = Some(Secret::new("http://f.test:2"));
        for target in ["http://127.0.0.1:8/", "http://localhost/", "http://[::1]:9/", "http://x.localhost/"] {
            assert!(is_loopback(&Url::parse(target).unwrap()), "{target}");
            let settings = ProxySettings { all: all.clone(), ..ProxySettings::default() };
            assert_eq!(chosen(&settings, target), None, "{target}");
            let settings = ProxySettings { forced: forced.clone(), ..settings };
            assert_eq!(chosen(&settings, target).as_deref(), Some("http://f.test:2/"), "{target}");
        }
    }

    #[test]
    fn a_bad_proxy_is_named_without_its_value() {
        let https = Some(Secret::new("ftp://user:hunter2@x"));
        let settings = ProxySettings { https, ..ProxySettings::default() };
        let error = ProxyRules::new(&settings).err().unwrap();
        assert!(error.message.contains("HTTPS_PROXY") && !error.message.contains("hunter2"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
