// The options of `vsrkit upscale` as a form: its groups, defaults and messages.

import { post } from "./api.js";
import { announce, button, delayed, el, marked, title } from "./dom.js";
import { store } from "./store.js";

const TITLES = { crf: "Quality (CRF)", pix_fmt: "Pixel format", max_memory: "Memory limit", start: "Start time", end: "End time", quality: "Overlap of windows" };
let forms = 0;

/** What an empty field means. */
function defaultText(option) {
  return option.default === null ? "automatic" : String(option.default);
}

class Field {
  constructor(option, value, form) {
    Object.assign(this, { option, form });
    const id = "option-" + form.number + "-" + option.name;
    this.input = this.#makeInput(id);
    this.error = el("p", { class: "error", id: id + "-error" });
    this.error.hidden = true;
    this.reset = button("Reset", { class: "plain small", label: "Reset " + this.title }, () => {
      this.set(undefined);
      this.input.focus();
      form.changed(this);
    });
    this.element = el("div", { class: "field" },
      el("label", { for: id, text: this.title }), el("code", { class: "quiet", text: option.flag }), this.reset, this.input,
      el("p", { class: "help quiet", id: id + "-help" }, ...marked(option.help)), this.error);
    this.input.setAttribute("aria-describedby", id + "-error " + id + "-help");
    this.input.addEventListener("input", () => form.changed(this));
    this.set(value);
  }

  get title() {
    return TITLES[this.option.name] ?? title(this.option.name);
  }

  #makeInput(id) {
    const { option } = this;
    if (option.type === "choice") {
      const choices = option.choices.filter(choice => choice !== option.default);
      return el("select", { id }, el("option", { value: "", text: option.default === null ? this.#automatic() : option.default + " (default)" }),
        ...choices.map(value => el("option", { value, text: value })));
    }
    if (option.type === "list") return el("textarea", { id, rows: 2, placeholder: "one in a line", spellcheck: "false" });
    const number = { integer: { inputmode: "numeric" }, number: { inputmode: "decimal" } }[option.type];
    return el("input", { id, type: "text", placeholder: defaultText(option), autocomplete: "off", spellcheck: "false", ...number });
  }

  #automatic() {
    return this.option.name === "model" ? store.models.default + " (default)" : "automatic";
  }

  set(value) {
    this.input.value = Array.isArray(value) ? value.join("\n") : value ?? "";
    this.reset.hidden = this.value === undefined;
  }

  /** The value for a request; undefined means the default. */
  get value() {
    const text = this.input.value.trim();
    if (text === "") return undefined;
    if (this.option.type === "list") return text.split("\n").map(line => line.trim()).filter(Boolean);
    const number = { integer: /^[+-]?\d+$/, number: /^[+-]?(\d+\.?\d*|\.\d+)$/ }[this.option.type];
    return number?.test(text) ? Number(text) : text;  // what is no number is refused with a message
  }

  setError(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
    if (text) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
  }
}

export class OptionsForm {
  /**
   * values: those that differ from the defaults.
   * without: names of options that are not shown.
   * onchange: called with the values after they were checked.
   */
  constructor({ values = {}, without = [], onchange = () => {} } = {}) {
    this.number = ++forms;
    this.onchange = onchange;
    this.fields = [];
    this.groups = [];
    this.valid = true;
    this.general = el("p", { class: "error" });
    this.general.hidden = true;
    this.element = el("div", { class: "options" });
    for (const group of store.options.groups) {
      const options = group.options.filter(option => !without.includes(option.name));
      if (!options.length) continue;
      const fields = options.map(option => new Field(option, values[option.name], this));
      const changes = el("span", { class: "count" });
      const details = el("details", { class: "group" }, el("summary", {}, group.name, changes), el("div", { class: "fields" }, ...fields.map(field => field.element)));
      this.fields.push(...fields);
      this.groups.push({ details, fields, changes });
      this.element.append(details);
    }
    this.element.append(this.general);
    this.check = delayed(250, field => this.#check(field));
    this.#showChanges();
  }

  get values() {
    return Object.fromEntries(this.fields.map(field => [field.option.name, field.value]).filter(([, value]) => value !== undefined));
  }

  changed(field) {
    field.reset.hidden = field.value === undefined;
    this.#showChanges();
    this.check(field);
  }

  #showChanges() {
    for (const { fields, changes } of this.groups) {
      const number = fields.filter(field => field.value !== undefined).length;
      changes.hidden = number === 0;
      changes.textContent = number;
      changes.setAttribute("aria-label", number + " changed");
    }
  }

  /** Ask the server whether it would take these values; its message is shown at the field. */
  async #check(changed) {
    try {
      await post("/api/options/check", { options: this.values });
      this.showError("");
      this.onchange(this.values);
    } catch (error) {
      this.showError(error.message, changed);
    }
  }

  /** Show a message at the field that it names, else at the one that was changed last. */
  showError(text, changed = this.fields.find(field => field.value !== undefined)) {
    this.valid = !text;
    const named = text && this.fields.find(({ option }) => new RegExp(option.flag + "(?![\\w-])").test(text));
    const place = named || changed;
    for (const field of this.fields) field.setError(text && field === place ? text : "");
    this.general.hidden = !text || Boolean(place);
    this.general.textContent = text;
    if (!text) return;
    announce(text);
    const group = this.groups.find(({ fields }) => fields.includes(place));
    if (group) group.details.open = true;
  }
}
