mod chat_encode;
mod provider_errors;
