//! A private certificate authority for tests.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A server certificate and the authority that signed it.
pub(crate) struct Identity {
    config: Arc<rustls::ServerConfig>,
    ca_pem: String,
}

impl Identity {
    /// A fresh authority and a certificate for `localhost`, `127.0.0.1` and these names.
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], secret)
            .unwrap();
        Self { config: Arc::new(config), ca_pem: ca.pem() }
    }

    pub(crate) fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.config.clone()
    }

    /// The authority's certificate, as files hold it.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}
