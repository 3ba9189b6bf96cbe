// Dialogs that put videos into the queue, change jobs there, and ask before work is thrown away.

import { patch, post } from "./api.js";
import { button, counted, el, toast } from "./dom.js";
import { OptionsForm } from "./options.js";
import { store } from "./store.js";

/** Show a form in a dialog; resolves to whether `send` was done, which throws to keep it open. `keep` is the way out. */
function ask(heading, content, action, send, keep = "Cancel") {
  return new Promise(done => {
    const before = document.activeElement;
    const error = el("p", { class: "error", role: "alert" });
    const submit = el("button", { class: "primary", type: "submit", text: action });
    const cancel = button(keep, {}, () => dialog.close());
    const form = el("form", { method: "dialog" }, el("h2", { id: "dialog-title", tabindex: "-1", autofocus: true, text: heading }), el("div", { class: "content" }, ...content), error,
      el("div", { class: "actions" }, cancel, submit));
    const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, form);
    let sent = false;
    form.addEventListener("submit", async event => {
      event.preventDefault();
      submit.disabled = true;
      error.textContent = "";
      try {
        await send();
        sent = true;
        dialog.close();
      } catch (failure) {
        error.textContent = failure.message;
        submit.disabled = false;
      }
    });
    dialog.addEventListener("click", event => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before?.isConnected) before.focus();
      done(sent);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function reportBox(checked) {
  const box = el("input", { type: "checkbox", checked });
  return { box, label: el("label", { class: "check" }, box, "Fidelity report: compare the result with the source, shot by shot") };
}

function nameField(value, placeholder) {
  const input = el("input", { type: "text", id: "dialog-output", placeholder, spellcheck: "false", autocomplete: "off" });
  input.value = value;
  return { input, label: el("div", { class: "field" }, el("label", { for: "dialog-output", text: "Output file" }), input,
    el("p", { class: "help quiet", text: "Beside the source. The ending decides the container: .mkv, .mp4, .mov or .webm." })) };
}

/** Put videos into the queue with the same options; each can be changed there. Resolves to whether that was done. */
export function addDialog(videos) {
  const form = new OptionsForm(), report = reportBox(false), single = videos.length === 1;
  form.groups.find(group => group.fields.some(field => field.option.name === "model")).details.open = true;
  const name = single ? nameField("", "chosen by vsrkit, such as " + videos[0].name.replace(/\.\w+$/, "") + ".x4.mkv") : null;
  const files = el("details", { class: "group" }, el("summary", { text: "Files" }), el("ul", { class: "plain-list" }, ...videos.map(video => el("li", { text: video.name }))));
  const heading = single ? "Upscale " + videos[0].name : "Upscale " + counted(videos.length, "video");
  const note = el("p", { class: "quiet", text: "All of them get these options. Each can be changed in the queue until it begins." });
  return ask(heading, [!single && note, !single && files, form.element, name?.label, report.label].filter(Boolean), "Add to the queue", async () => {
    const output = name?.input.value.trim() || undefined;
    const jobs = videos.map(video => ({ video: video.id, options: form.values, report: report.box.checked, output }));
    await addJobs(jobs);
  });
}

/** Add jobs and tell where they are. */
export async function addJobs(jobs) {
  const { jobs: added } = await store.settle(post("/api/jobs", { jobs }), answer => answer.jobs.forEach(job => store.setJob(job)));
  const text = added.length === 1 ? added[0].output.name + " is in the queue" : counted(added.length, "job") + " are in the queue";
  toast(text, { link: { href: "#/queue", text: "Show the queue" } });
}

/** Ask before a job that has begun is cancelled; `send` cancels it. */
export function cancelDialog(job, send) {
  const text = el("p", { text: "What it has finished is discarded. Pause it instead to keep that for later." });
  return ask("Cancel " + job.name + "?", [text], "Cancel the job", send, "Keep the job");
}

/** Change the options of a job that does not run. */
export function changeDialog(job) {
  const form = new OptionsForm({ values: job.options }), report = reportBox(job.report), name = nameField(job.output.name, "");
  form.groups.find(group => group.fields.some(field => field.option.name === "model")).details.open = true;
  return ask("Options of " + job.name, [form.element, name.label, report.label], "Save", async () => {
    const output = name.input.value.trim() || undefined;
    const values = { options: form.values, report: report.box.checked, output };
    await store.settle(patch("/api/jobs/" + job.id, values), job => store.setJob(job));
  });
}
