//! Images in prompts and in results of `read`, as the server gets them (MSG-07).

use serde_json::{Value, json};

use super::{KEY, Output, Pirn};
use crate::support::chat::{chat_error, chat_text, chat_tool};
use crate::support::images::{DOT, DOT_BASE64, apng, bmp, heavy_png, png};
use crate::support::server::Server;

/// A model that takes images, behind a server of the test.
const SEES: &str = "openai/gpt-4.1-mini";
/// One that is not known to.
const BLIND: &str = "openai/test-model";

fn call(server: &Server, model: &str, args: &[&str]) -> Pirn {
    Pirn::new(args.iter().copied())
        .env("PIRN_MODEL", model)
        .env("OPENAI_BASE_URL", server.base_url())
        .env("OPENAI_API_KEY", KEY)
        .file("shot.png", DOT)
        .file("notes.png", "only called a picture\n")
        .file("drawing.svg", "<svg/>")
        .file("moving.png", apng(3, 2))
        .file("heavy.png", heavy_png(6_000_000))
        .file("wide.png", png(9000, 100))
        .file("cut.png", &png(30, 20)[..60])
        .file("bitmap.bmp", bmp(2, 2))
        .file("nothing.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0")
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn dot() -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{DOT_BASE64}")}})
}

/// Runs a call that must succeed, and gives the content of the user's message.
fn sent(args: &[&str]) -> Value {
    let server = Server::start([chat_text("OK")]);
    let output = call(&server, SEES, args).run();
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.as_str()), (0, "OK\n", ""));
    server.assert_clean();
    server.bodies()[0]["messages"][1]["content"].clone()
}

/// Runs a call that must be refused before anything is sent.
fn refused(model: &str, args: &[&str]) -> Output {
    let server = Server::start([]);
    let output = call(&server, model, args).run();
    assert_eq!((output.code(), output.stdout.as_str()), (2, ""), "{args:?}: {}", output.stderr);
    assert_eq!(server.connections(), 0, "{args:?}: nothing is sent");
    output
}

#[test]
fn an_attached_image_follows_the_text_behind_its_facts_i1() {
    let line = || text("[image/png 1x1, 70B]");
    for args in [&["-a", "shot.png", "what is it?"][..], &["what", "is it?", "@shot.png"]] {
        assert_eq!(sent(args), json!([text("what is it?"), line(), dot()]), "{args:?}");
    }
    assert_eq!(sent(&["@shot.png"]), json!([line(), dot()]), "an image alone is a prompt");
    let several = sent(&["@moving.png", "-a", "shot.png", "compare", "@notes.png", "@drawing.svg"]);
    let words = "compare\n\n<file path=\"notes.png\">\nonly called a picture\n</file>\n\n\
                 <file path=\"drawing.svg\">\n<svg/>\n</file>";
    assert_eq!(several[0], text(words), "text is text, whatever it is called");
    assert_eq!((&several[1], &several[2]), (&line(), &dot()), "-a comes before @");
    let moving = several[3]["text"].as_str().unwrap();
    assert!(moving.starts_with("[image/png 3x2, "), "{moving}");
    assert_eq!(several.as_array().unwrap().len(), 5);
}

#[test]
fn an_image_for_a_model_that_takes_none_is_refused_by_name_i4() {
    let stderr = refused(BLIND, &["what is it?", "@shot.png"]).stderr;
    assert!(stderr.starts_with("pirn: usage: shot.png is an image, and openai/test-model takes none\n"), "{stderr}");
    assert!(stderr.contains("id = \"openai/test-model\", input = [\"text\", \"image\"]"), "{stderr}");
    let output = refused_json(BLIND, &["--json", "x", "@shot.png"]);
    assert_eq!((&output["reason"], &output["error"]["kind"]), (&"usage".into(), &"usage".into()));
    // The remedy works.
    let server = Server::start([chat_text("OK")]);
    let config = "[models.mine]\nid = \"openai/test-model\"\ninput = [\"text\", \"image\"]\n";
    let output = call(&server, "mine", &["--config", "c.toml", "@shot.png"]).file("c.toml", config).run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    assert_eq!(server.bodies()[0]["messages"][1]["content"][1], dot());
}

/// The `result` line of a call that must be refused before anything is sent.
fn refused_json(model: &str, args: &[&str]) -> Value {
    let server = Server::start([]);
    let output = call(&server, model, args).run();
    assert_eq!((output.code(), output.lines().len()), (2, 1), "{}", output.stderr);
    assert_eq!(server.connections(), 0);
    output.result().clone()
}

#[test]
fn an_image_that_cannot_be_sent_is_refused_by_name() {
    for (file, wanted) in [
        ("heavy.png", "heavy.png is larger than 5 MB, the limit of an image\n"),
        ("cut.png", "cut.png is cut off: image/png 30x20, 60B\n"),
        ("nothing.jpg", "nothing.jpg: not a readable image\n"),
    ] {
        let stderr = refused(SEES, &["x", "-a", "shot.png", "-a", file]).stderr;
        assert!(stderr.starts_with(&format!("pirn: usage: {wanted}")), "{stderr}");
    }
}

#[cfg(not(feature = "images"))]
#[test]
fn an_image_that_would_have_to_be_changed_is_refused_by_name_i3() {
    for (file, wanted) in [
        ("wide.png", "wide.png is too large to attach: image/png 9000x100, "),
        ("bitmap.bmp", "bitmap.bmp is a bitmap, which providers do not take: image/bmp 2x2, 70B\n"),
    ] {
        let stderr = refused(SEES, &["x", "-a", file]).stderr;
        assert!(stderr.starts_with(&format!("pirn: usage: {wanted}")), "{stderr}");
    }
}

#[cfg(feature = "images")]
#[test]
fn an_image_that_has_to_be_changed_is_changed_i3() {
    let wide = sent(&["x", "@wide.png"]);
    let line = wide[1]["text"].as_str().unwrap();
    assert!(line.starts_with("[image/png 2000x22, ") && line.ends_with("multiply coordinates by 4.5]"), "{line}");
    assert!(sent(&["@bitmap.bmp"])[0]["text"].as_str().unwrap().starts_with("[image/png 2x2, "));
}

#[test]
fn an_image_that_read_shows_stands_behind_the_results_msg_07() {
    let server = Server::start([chat_tool("read", json!({"path": "shot.png"})), chat_text("OK")]);
    let output = call(&server, SEES, &["--json", "look at shot.png"]).run();
    assert_eq!(output.code(), 0, "{}", output.stderr);
    server.assert_clean();
    let messages = &server.bodies()[1]["messages"];
    assert_eq!(messages[3]["content"], "[image/png 1x1, 70B]");
    let images = json!([text("Images returned by the tools above:"), dot()]);
    assert_eq!(messages[4], json!({"role": "user", "content": images}));

    // One that providers would refuse in every request from now on never gets into the transcript.
    let reading = || chat_tool("read", json!({"path": "wide.png"}));
    let server = Server::start([reading(), chat_text("OK")]);
    assert_eq!(call(&server, SEES, &["look"]).run().code(), 0);
    let bodies = server.bodies();
    let line = bodies[1]["messages"][3]["content"].as_str().unwrap();
    assert!(line.ends_with(": too large to attach]") || line.contains("resized from 9000x100"), "{line}");
    // A model without image input reads the line.
    let server = Server::start([chat_tool("read", json!({"path": "shot.png"})), chat_text("OK")]);
    assert_eq!(call(&server, BLIND, &["look"]).run().code(), 0);
    let line = "[image/png 1x1, 70B: the current model takes no images]";
    assert_eq!(server.bodies()[1]["messages"][3]["content"], line);
}

#[test]
fn a_refused_image_costs_one_request_in_a_run_and_a_warning_msg_07() {
    let refusal = chat_error(400, "invalid_image", "Could not process image");
    let reading = chat_tool("read", json!({"path": "notes.png"}));
    let server = Server::start([refusal, reading, chat_text("OK")]);
    let output = call(&server, SEES, &["what is it?", "@shot.png"]).run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "OK\n"), "{}", output.stderr);
    assert!(
        output.stderr.contains("the server refused an image; the request was sent without images"),
        "{}",
        output.stderr
    );
    let left_out = text("[image left out: this model takes no images]");
    let bodies = server.bodies();
    assert_eq!(bodies.len(), 3, "the second turn does not try again");
    for body in &bodies[1..] {
        assert_eq!(body["messages"][1]["content"][2], left_out);
    }
    server.assert_clean();

    // In a stream it is a warning line and a note on the reply; the message keeps the image.
    let refusal = chat_error(413, "too_large", "an image exceeds the limit of 2000 pixels");
    let server = Server::start([refusal, chat_text("OK")]);
    let output = call(&server, SEES, &["--json", "@shot.png"]).run();
    let lines = output.lines();
    assert!(lines.iter().any(|line| line["type"] == "warning" && line["code"] == "image_refused"), "{lines:?}");
    let told = |role: &str| lines.iter().find(|l| l["type"] == "message_end" && l["message"]["role"] == role).unwrap();
    assert_eq!(told("user")["message"]["content"][1]["data"], DOT_BASE64);
    assert_eq!(told("assistant")["message"]["diagnostics"][0]["code"], "image_refused");
}
