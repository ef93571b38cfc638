mod chat_decode;
mod sse;
