"""From a request to an explained answer: the prompt is laid out, the model answers (unless the answer is given), and what it
put out is pulled back to the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from transformers import PreTrainedTokenizerBase

from normscope.errors import InputError
from normscope.explain.answering import (
    AnswerEngine,
    Exchange,
    answer_tokens,
    check_generates,
    exchange_of,
)
from normscope.explain.parse import longest_continued
from normscope.explain.pulling import PullRequest
from normscope.families.heads import refuse_made_up_head
from normscope.inputs.generation import generate
from normscope.inputs.prompt import Prompt, chat_prompt, context_prompt, read_context, read_messages
from normscope.models.model import Model
from normscope.options import DEFAULT_OBJECTIVE, Objective, ff_baseline_of, objective_of, weights_of, whole_number
from normscope.request import AnswerRequest
from normscope.results import answer_schema as names
from normscope.results.answer import Answer

_END_OF_LINE = "\n"


def explain_answer(model: Model, asked: AnswerRequest) -> Answer:
    """The explanation of the answer that a model gives, or is given."""
    check_generates(model)
    refuse_made_up_head(model.module)
    objective = _objective(asked)
    start, weights = ff_baseline_of(asked.ff_baseline), weights_of(asked.weights)
    how = PullRequest(False, asked.dtype, asked.max_memory, asked.on_progress, start, weights=weights)
    prompt, said = read_prompt(model, asked)
    exchange = _exchange(model, prompt, asked, said)
    return _explained(AnswerEngine(model, exchange, objective, how), asked)


def read_prompt(model: Model, asked: AnswerRequest) -> tuple[Prompt, str | Sequence[int] | None]:
    """The prompt, and the answer if it was given: as such, or as the last turn of a chat."""
    if asked.messages is None:
        if asked.context is None and asked.question is None:
            raise InputError("Give a context and a question, or the messages of a chat, for the model to answer.")
        documents = {} if asked.context is None else read_context(asked.context)
        return context_prompt(model.tokenizer, documents, asked.question, asked.layout, chat=asked.chat), asked.answer
    if asked.context is not None or asked.question is not None or asked.layout is not None:
        raise InputError("Messages take the place of a context, a question and their layout: give one or the other.")
    turns = read_messages(asked.messages)
    given = asked.answer
    if len(turns) > 1 and turns[-1][0] == "assistant":
        if given is not None:
            raise InputError(
                "The last message is the assistant's, which is the answer: leave out answer, or the message."
            )
        turns, given = turns[:-1], turns[-1][1]
    return chat_prompt(model.tokenizer, turns), given


def _objective(asked: AnswerRequest) -> Objective:
    if asked.objective is None:
        return DEFAULT_OBJECTIVE if asked.against is None else "contrast"
    objective = objective_of(asked.objective)
    if asked.against is not None and objective != "contrast":
        raise InputError(f"With another answer (against), the objective is a contrast, not {objective!r}.")
    return objective


def _exchange(model: Model, prompt: Prompt, asked: AnswerRequest, said: str | Sequence[int] | None) -> Exchange:
    tokenizer = cast(PreTrainedTokenizerBase, model.tokenizer)
    if said is not None:
        ids = answer_tokens(model, prompt, said)
        _check_length(model, prompt, len(ids) - 1)
        return exchange_of(tokenizer, prompt, ids)
    most = whole_number(asked.max_new_tokens, "The most tokens of the answer (max_new_tokens)")
    if most < 1:
        raise InputError(f"An answer has at least one token (max_new_tokens), not {most}.")
    _check_length(model, prompt, 1)
    if model.family.encoder is None:
        most = min(most, longest_continued(model) - len(prompt.ids))
    report = asked.on_text
    generated = generate(
        *(model.module, tokenizer, prompt.ids, most),
        seed=None if asked.seed is None else whole_number(asked.seed, "The seed of the generation"),
        stop=asked.stop or (None if prompt.chat else _END_OF_LINE),
        on_token=None
        if report is None
        else lambda ids: report(cast(str, tokenizer.decode(ids, skip_special_tokens=True))),
    )
    return exchange_of(tokenizer, prompt, generated.ids, generated.finished)


def _check_length(model: Model, prompt: Prompt, more: int) -> None:
    """Raise if prompt and answer are longer than the model takes, and say what is long in them."""
    encoder = model.family.encoder is not None
    longest = model.longest if encoder else longest_continued(model)
    count = len(prompt.ids) + (0 if encoder else more)
    if longest is None or count <= longest:
        return
    sizes = {each.name: sum(each.start <= start < each.end for start, _ in prompt.offsets) for each in prompt.segments}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    raise InputError(
        f"Prompt and answer have {count} tokens, but {model.name} takes at most {longest}. The longest part is the "
        f"{largest} with {sizes.get(largest, 0)}: shorten it, leave out documents that do not matter, or use a model for "
        f"longer texts."
    )


def _explained(engine: AnswerEngine, asked: AnswerRequest) -> Answer:
    whole = engine.content
    if asked.against is not None:
        place, pulled = engine.contrast(whole, asked.against)
        whole = [place]
    else:
        pulled = engine.spans([whole])
    exchange = engine.exchange
    facts: dict[str, str | int | float] = {
        **engine.model.facts,
        "method": "pull-back",
        "objective": engine.objective,
        "against": _text(asked.against),
        "hops": "",
        "chat": int(exchange.prompt.chat),
        "generated": int(exchange.finished is not None),
        "finished": int(exchange.finished is not False),
        "seed": "" if asked.seed is None else int(asked.seed),
        "ff_baseline": asked.ff_baseline,
        "weights": asked.weights,
    }
    dataset = names.with_span(names.answer_dataset(engine, pulled, facts), pulled, whole)
    answer = Answer(dataset, engine)
    if asked.table:
        _ = answer.table
    return answer


def _text(against: str | Sequence[int] | None) -> str:
    return "" if against is None else against if isinstance(against, str) else str(list(against))
