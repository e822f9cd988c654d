// Asks the proxy. Law: relative addresses only, so that the page works behind any path.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "trimtab does not answer. Is it running?");
  }
  if (response.ok) return response;
  let told = "";
  try {
    told = (await response.json()).error.message;
  } catch {
    // No JSON: the status has to do.
  }
  throw new ApiError(response.status, String(told || `trimtab answered with status ${response.status}.`));
}

const query = (values) => {
  const set = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return set.length ? `?${new URLSearchParams(set)}` : "";
};

/** The JSON at a path below api/. Raises ApiError. */
export async function read(path, values = {}, signal = undefined) {
  const response = await ask(`api/${path}${query(values)}`, { signal });
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, "The answer is not JSON. Is something between this page and trimtab?");
  }
}

/** Erase a session, or only its text. Raises ApiError. */
export const erase = (session, { textOnly }) =>
  ask(`api/sessions/${encodeURIComponent(session)}${textOnly ? "?text=only" : ""}`, {
    method: "DELETE",
    headers: { "x-trimtab-dashboard": "1" },
  });

/** Have a session cut at its next request. Raises ApiError. */
export const compact = (session) =>
  ask(`api/sessions/${encodeURIComponent(session)}/compact`, { method: "POST", headers: { "x-trimtab-dashboard": "1" } });

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15_000;

/**
 * The server-sent events, for as long as the page is shown and not paused. It connects again by itself.
 * tell(state): "live", "paused" or "lost". hear(name, data): an event; the name is "open" after each connection.
 */
export class Live {
  #source = null;
  #timer = 0;
  #wait = FIRST_WAIT;
  paused = false;

  constructor(tell, hear) {
    this.tell = tell;
    this.hear = hear;
    document.addEventListener("visibilitychange", () => this.#follow());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", () => this.#follow());
    this.#follow();
  }

  toggle() {
    this.paused = !this.paused;
    this.#follow();
  }

  #follow() {
    if (this.paused || document.hidden) {
      this.#close();
      if (this.paused) this.tell("paused");
    } else if (!this.#source) this.#open();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    clearTimeout(this.#timer);
    const source = new EventSource("api/events");
    this.#source = source;
    source.addEventListener("open", () => {
      this.#wait = FIRST_WAIT;
      this.tell("live");
      this.hear("open", null);
    });
    for (const name of ["request", "totals", "lost"]) {
      source.addEventListener(name, (event) => this.hear(name, JSON.parse(event.data)));
    }
    source.addEventListener("error", () => {
      this.#close();
      this.tell("lost");
      this.#timer = setTimeout(() => this.#follow(), this.#wait);
      this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    });
  }
}
