//! Root certificates and the TLS configuration (HTTP-11).
//!
//! Keeps true: TLS 1.2 or newer, certificates always checked; the first configured source of roots is the only one;
//! built-in roots serve only machines that have none.
//!
//! Must not know: requests.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::HttpSettings;
use crate::model::{ErrorKind, ErrorRecord};

/// A configuration that offers HTTP/2 and HTTP/1.1 and trusts the configured roots. Reads files: call it off the
/// runtime's thread.
pub(super) fn with_roots(settings: &HttpSettings) -> Result<ClientConfig, ErrorRecord> {
    config(roots(settings)?)
}

/// A configuration for clients that never speak TLS; costs nothing.
pub(super) fn without_roots() -> Result<ClientConfig, ErrorRecord> {
    config(RootCertStore::empty())
}

fn config(roots: RootCertStore) -> Result<ClientConfig, ErrorRecord> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ErrorRecord::new(ErrorKind::Internal, format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(settings: &HttpSettings) -> Result<RootCertStore, ErrorRecord> {
    let mut store = RootCertStore::empty();
    if let Some(file) = &settings.ca_file {
        add_file(&mut store, "ca_file", file)?;
        return Ok(store);
    }
    if settings.ssl_cert_file.is_some() || settings.ssl_cert_dir.is_some() {
        if let Some(file) = &settings.ssl_cert_file {
            add_file(&mut store, "SSL_CERT_FILE", file)?;
        }
        if let Some(dir) = &settings.ssl_cert_dir {
            add_dir(&mut store, dir)?;
        }
        return Ok(store);
    }
    let system = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(system.certs);
    if store.is_empty() {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(store)
}

fn add_file(store: &mut RootCertStore, setting: &str, file: &Path) -> Result<(), ErrorRecord> {
    let fault = |what: String| ErrorRecord::new(ErrorKind::Config, format!("{setting}: {}: {what}", file.display()));
    let bytes = std::fs::read(file).map_err(|error| fault(error.to_string()))?;
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        found.push(certificate.map_err(|error| fault(format!("not a PEM file: {error}")))?);
    }
    let (added, _ignored) = store.add_parsable_certificates(found);
    if added == 0 {
        return Err(fault("no certificate in this file".to_owned()));
    }
    Ok(())
}

/// Directories hold other files too, so only a directory without any certificate is an error.
fn add_dir(store: &mut RootCertStore, dir: &Path) -> Result<(), ErrorRecord> {
    let found = rustls_native_certs::load_certs_from_paths(None, Some(dir));
    let (added, _ignored) = store.add_parsable_certificates(found.certs);
    if added == 0 && store.is_empty() {
        let why = found.errors.first().map_or_else(|| "no certificate in it".to_owned(), ToString::to_string);
        let text = format!("SSL_CERT_DIR: {}: {why}", dir.display());
        return Err(ErrorRecord::new(ErrorKind::Config, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{HttpSettings, with_roots};
    use crate::model::ErrorKind;

    #[test]
    fn a_certificate_file_that_cannot_serve_is_named_with_its_setting() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.pem");
        std::fs::File::create(&empty).unwrap();
        let none = HttpSettings::default();
        let table = [
            (HttpSettings { ca_file: Some(empty.clone()), ..none.clone() }, "ca_file: "),
            (HttpSettings { ssl_cert_file: Some(dir.path().join("absent")), ..none.clone() }, "SSL_CERT_FILE: "),
            (HttpSettings { ssl_cert_dir: Some(dir.path().to_owned()), ..none }, "SSL_CERT_DIR: "),
        ];
        for (settings, prefix) in table {
            let error = with_roots(&settings).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Config);
            assert!(error.message.starts_with(prefix), "{}", error.message);
        }
    }
}
